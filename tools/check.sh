#!/bin/sh
# SPDX-License-Identifier: MIT
# Formatting and static analysis of everything that git knows, and the interface of the library.
# Says all that is wrong, then fails.
cd "$(dirname "$0")/.." || exit 1
failed=0

echo "clang-format"
git ls-files -z '*.c' '*.h' '*.cc' | xargs -0 clang-format --dry-run -Werror || failed=1

# clang-tidy wants the flags of a build by clang; only headers that are made need to be built for
# it.
CC=clang tools/configure.sh build-tidy -Dtests=false || exit 1
ninja -C build-tidy src/proto/grpc/messages/messages.bin >/dev/null || exit 1

echo "clang-tidy"
git ls-files -z 'src/*.c' | xargs -0 -n 4 -P 2 clang-tidy -p build-tidy --quiet || failed=1

echo "cppcheck"
# ctuuninitvar takes every struct that is handed over to be filled for one that is read.
git ls-files -z 'src/*.c' | xargs -0 cppcheck --quiet --std=c11 --error-exitcode=1 \
    --enable=warning,portability --inline-suppr --suppress=missingIncludeSystem \
    --suppress=ctuuninitvar \
    -Iinclude -Isrc -D__SIZEOF_INT128__=16 -D__x86_64__ -D__GNUC__ || failed=1

echo "abidiff"
tools/check_abi.sh || failed=1

exit "$failed"
