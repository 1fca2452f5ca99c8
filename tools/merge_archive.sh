#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: CC=… AR=… OBJCOPY=… merge_archive.sh OUTPUT ARCHIVE...
# Joins archives into one whose only global names are those marked as visible.
set -eu
output=$1
shift
object=${output%.a}.merged.o
rm -f "$output" "$object"
$CC -r -nostdlib -o "$object" -Wl,--whole-archive "$@" -Wl,--no-whole-archive
$OBJCOPY --localize-hidden "$object"
$AR rcs "$output" "$object"
rm -f "$object"
