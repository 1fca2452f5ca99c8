#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: configure.sh FOLDER OPTION...
# meson setup, once, and quiet unless it fails. A folder whose setup did not end is begun anew:
# Meson itself would take it for one that is configured.
set -u
folder=$1
shift
[ -e "$folder/build.ninja" ] && exit 0
rm -rf "$folder/meson-private" "$folder/meson-info"
# A Debian without dpkg-dev: Meson takes lib64 there, where neither the linker, pkg-config nor CMake
# looks.
multiarch=
if [ -e "${DEBIAN:-/etc/debian_version}" ] && ! command -v dpkg-architecture >/dev/null; then
    multiarch=$(gcc -print-multiarch)
fi
if ! output=$(meson setup "$folder" ${multiarch:+"--libdir=lib/$multiarch"} "$@" 2>&1); then
    printf '%s\n' "$output" >&2
    rm -f "$folder/build.ninja"
    echo "configure: Meson cannot configure $folder, for the reason above; then run make again" >&2
    exit 1
fi
