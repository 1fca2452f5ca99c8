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
if ! output=$(meson setup "$folder" "$@" 2>&1); then
    printf '%s\n' "$output" >&2
    rm -f "$folder/build.ninja"
    echo "configure: Meson cannot configure $folder, for the reason above; then run make again" >&2
    exit 1
fi
