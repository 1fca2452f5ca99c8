#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: setup.sh run|test|test-all|check|fuzz-afl|bench-server|demo-cluster
# Installs what that needs on Debian 12 and its relatives, and nothing where all of it is there.
set -eu

run="gcc libc6-dev meson ninja-build pkg-config zlib1g-dev libjansson-dev libyaml-dev libuv1-dev
    node-llhttp libgnutls28-dev libsystemd-dev libseccomp-dev libcurl4-gnutls-dev
    libjs-chart.js libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler libhiredis-dev"
# Small ones: 50 packages and 25 MB beside those of `run`.
test="$run git libcmocka-dev scdoc man-db python3 python3-pytest python3-hypothesis procps curl jq
    openssl wrk nghttp2-client nginx lua-socket python3-jsonschema python3-grpcio python3-yaml
    redis-server redis-sentinel redis-tools python3-redis memcached iproute2 libmicrohttpd-dev"
# The sanitizers' and fuzzers' runtime is only recommended by clang; -O0 builds name their lines
# with llvm's symbolizer.
test_all="$test g++ clang llvm libclang-rt-14-dev python3-venv gnuplot-nox chromium
    fonts-dejavu-core haproxy apache2-bin caddy"
# Clients of npm, Go and Maven are tested with whichever Node, Go and Java there are.
command -v npm >/dev/null || test_all="$test_all nodejs npm"
command -v go >/dev/null || test_all="$test_all golang-go"
command -v javac >/dev/null || test_all="$test_all default-jdk-headless"
command -v mvn >/dev/null || test_all="$test_all maven"
# The amalgamation also runs as 32-bit and as aarch64. Plain gcc-multilib conflicts with the cross
# compiler; the versioned package does not.
foreign="gcc-12-multilib libc6-dev-i386 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
check="$run git python3 clang libclang-rt-14-dev clang-format clang-tidy cppcheck"
demo_cluster="$run python3 redis-server redis-tools"
bench_server="$run python3 redis-server redis-tools nginx wrk nghttp2-client nghttp2-server
    util-linux"
fuzz_afl="$run clang llvm libclang-rt-14-dev python3 afl++"

case ${1:-} in
run) packages=$run ;;
test) packages=$test ;;
test-all) packages=$test_all ;;
check) packages=$check ;;
fuzz-afl) packages=$fuzz_afl ;;
bench-server) packages=$bench_server ;;
demo-cluster) packages=$demo_cluster ;;
*)
    echo "usage: $0 run|test|test-all|check|fuzz-afl|bench-server|demo-cluster" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null; then
    echo "setup: not a Debian system; needed are the equivalents of:" $packages >&2
    exit 0
fi
if [ "$1" = test-all ] && [ "$(dpkg --print-architecture)" = amd64 ]; then
    packages="$packages $foreign"
fi

missing=
for package in $packages; do
    case $(dpkg-query -W -f '${Status}' "$package" 2>/dev/null) in
    "install ok installed") ;;
    *) missing="$missing $package" ;;
    esac
done
[ -n "$missing" ] || exit 0

as_root=
[ "$(id -u)" -eq 0 ] || as_root=sudo
echo "setup: installing$missing" >&2
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends $missing >&2
}
# The lists of a fresh system are empty or old: fetch them only if the first try fails.
install || { $as_root apt-get update -q >&2 && install; }
