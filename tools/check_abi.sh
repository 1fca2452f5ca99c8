#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: check_abi.sh [--update]
# Compares what programs see of libstint.so (functions, types, layouts) with tests/abi/libstint.abi,
# the description of the last release or of the last agreed change. --update writes it anew.
cd "$(dirname "$0")/.." || exit 1
kept=tests/abi/libstint.abi
now=build-abi/libstint.abi
library=src/libstint.so.$(sed -n "s/^    version: '\(.*\)',/\1/p" meson.build)

CC=gcc tools/configure.sh build-abi -Dprogram=false -Ddebug=true -Doptimization=0 || exit 1
ninja -C build-abi --quiet "$library" || exit 1
abidw --headers-dir include --drop-private-types --exported-interfaces-only --type-id-style hash \
    --no-show-locs --no-comp-dir-path --no-corpus-path "build-abi/$library" >$now || exit 1
if [ "${1:-}" = --update ]; then
    cp $now $kept
    exit 0
fi

architecture() {
    grep -o "architecture='[^']*'" "$1"
}
if [ "$(architecture $kept)" != "$(architecture $now)" ]; then
    echo "abi: $kept describes another architecture, so nothing is compared" >&2
    exit 0
fi
abidiff $kept $now
code=$?
[ $code -eq 0 ] && exit 0
if [ $((code & 3)) -ne 0 ]; then
    echo "abi: abidiff failed" >&2
elif abidiff --no-added-syms $kept $now >build-abi/changed.txt; then
    echo "abi: libstint.so has additions. If they are intended, run" >&2
    echo "tools/check_abi.sh --update and commit $kept" >&2
else
    echo "abi: programs built with the last release may break. Keep what they use, or raise" >&2
    echo "stint_abi in meson.build, say so in NEWS.md, and run tools/check_abi.sh --update" >&2
fi
exit 1
