#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: setup.sh WORD, one of `words` below
# Installs what that needs on Debian 12 and its relatives, and nothing where all of it is there.
# Prints what to install where it cannot: without root and sudo, and on other systems.
set -eu

words="run unit test test-all test-envoy-gateway wheels prove check coverage fuzz-afl bench-server
    bench-peers demo-cluster demo-gateway dashboard deb image dist"

# Each word has a variable of its name, with _ for -.
run="gcc libc6-dev meson ninja-build pkg-config zlib1g-dev libjansson-dev libyaml-dev libuv1-dev
    node-llhttp libgnutls28-dev libsystemd-dev libseccomp-dev libcurl4-gnutls-dev
    libzstd-dev libjs-chart.js libnghttp2-dev libprotobuf-c-dev protobuf-c-compiler libhiredis-dev"
unit="$run python3 libcmocka-dev"
# Small ones: 60 packages and 50 MB beside those of `run`. README's commands need g++ and cmake.
test="$run g++ cmake git libcmocka-dev scdoc man-db python3 python3-pytest python3-hypothesis
    procps curl jq openssl wrk nghttp2-client nginx lua-socket python3-jsonschema python3-grpcio
    python3-yaml redis-server redis-sentinel redis-tools python3-redis memcached iproute2
    libmicrohttpd-dev python3-dev"
# The sanitizers' and fuzzers' runtime is only recommended by clang; -O0 builds name their lines
# with llvm's symbolizer.
test_all="$test clang llvm libclang-rt-14-dev python3-venv gnuplot-nox chromium
    fonts-dejavu-core haproxy apache2-bin caddy prometheus runc"
# Completion is tried in each shell, in tests/interop/test_completion.py.
test_all="$test_all bash-completion zsh fish"
# Clients of npm, Go and Maven are tested with whichever Node, Go and Java there are.
command -v npm >/dev/null || test_all="$test_all nodejs npm"
command -v go >/dev/null || go=golang-go
test_all="$test_all ${go:-}"
command -v javac >/dev/null || test_all="$test_all default-jdk-headless"
command -v mvn >/dev/null || test_all="$test_all maven"
# The packages of Debian, and what looks into the image and runs it. mmdebstrap makes a Debian in
# which packages are installed, or compiled for another processor.
deb="$run build-essential debhelper dpkg-dev lintian mmdebstrap scdoc git python3"
image="$deb binutils ca-certificates libcurl3-gnutls"
dist="git gnupg python3"
test_all="$test_all $image $dist skopeo umoci crun"
# The amalgamation also runs as 32-bit and as aarch64. Plain gcc-multilib conflicts with the cross
# compiler; the versioned package does not.
foreign="gcc-12-multilib libc6-dev-i386 gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
wheels="gcc libc6-dev binutils python3 python3-dev python3-venv qemu-user"
check="$run git python3 clang libclang-rt-14-dev clang-format clang-tidy cppcheck
    abigail-tools"
coverage="$test"
# Spin translates models to C; a checker of C is from PyPI.
prove="gcc libc6-dev python3 python3-venv spin"
test_all="$test_all $prove"
test_envoy_gateway="$test python3-venv runc ${go:-}"
demo_gateway="$run python3 python3-pytest python3-venv"
demo_cluster="$run python3 redis-server redis-tools"
bench_server="$run python3 redis-server redis-tools nginx wrk nghttp2-client nghttp2-server
    util-linux"
# Compilers of peers are not installed: without one, its peers are listed as not measured.
bench_peers="$bench_server protobuf-compiler gnuplot-nox python3-venv"
dashboard="$run python3 redis-server redis-tools memcached prometheus"
fuzz_afl="$run clang llvm libclang-rt-14-dev python3 afl++"

packages=
for word in $words; do
    [ "$word" != "${1:-}" ] || eval "packages=\$$(echo "$word" | tr - _)"
done
if [ -z "$packages" ]; then
    echo "usage: $0 $(echo $words | tr ' ' '|')" >&2
    exit 2
fi

# Elsewhere: what builds the program, by the names of pkg-config where packages have these.
pc="zlib libzstd jansson yaml-0.1 libuv libllhttp gnutls libsystemd libseccomp libcurl libnghttp2
    libprotobuf-c hiredis"
elsewhere() {
    case " ${ID:-} ${ID_LIKE:-} " in
    *" fedora "* | *" rhel "*) echo "dnf install gcc meson pkgconf python3 /usr/bin/protoc-c" \
        "$(printf "'pkgconfig(%s)' " $pc)" ;;
    *" suse "* | *" opensuse "*) echo "zypper install gcc meson pkgconf python3" \
        "/usr/bin/protoc-c $(printf "'pkgconfig(%s)' " $pc)" ;;
    *" arch "*) echo "pacman -S --needed gcc meson pkgconf python zlib zstd jansson libyaml libuv" \
        "llhttp gnutls systemd-libs libseccomp curl libnghttp2 protobuf-c hiredis" ;;
    *" alpine "*) echo "apk add gcc musl-dev binutils meson pkgconf python3"
        echo "  for the library, meson setup build -Dprogram=false: there is no libsystemd" ;;
    *) echo "the equivalents of:" $packages ;;
    esac
}

if ! command -v dpkg-query >/dev/null; then
    ID=$(uname -s | tr '[:upper:]' '[:lower:]')
    [ ! -r "${OS_RELEASE:=/etc/os-release}" ] || . "$OS_RELEASE"
    [ "$1" = run ] || echo "setup: make $1 is for Debian 12; only make run is known elsewhere" >&2
    echo "setup: not a Debian system, so packages are not checked; needed are:" >&2
    echo "  $(elsewhere)" >&2
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
if [ "$(id -u)" -ne 0 ]; then
    as_root=sudo
fi
by_hand() {
    echo "setup: $1; run this as root, then make again:" >&2
    echo "  apt-get update && apt-get install --no-install-recommends$missing" >&2
    exit 1
}
[ -z "$as_root" ] || command -v sudo >/dev/null || by_hand "packages are missing"
echo "setup: installing$missing" >&2
install() {
    $as_root env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -q --no-install-recommends $missing >&2
}
# The lists of a fresh system are empty or old: fetch them only if the first try fails.
install || { $as_root apt-get update -q >&2 && install; } || by_hand "apt-get failed"
