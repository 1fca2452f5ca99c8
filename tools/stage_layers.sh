#!/bin/sh
# SPDX-License-Identifier: MIT
# usage: stage_layers.sh SOURCE_DIR LAYERS_DIR FOLDER...
# Makes LAYERS_DIR/FOLDER/FOLDER -> SOURCE_DIR/FOLDER: one include root per folder.
set -eu
source_dir=$1
layers_dir=$2
shift 2
for folder; do
    mkdir -p "$layers_dir/$folder"
    ln -sfn "$source_dir/$folder" "$layers_dir/$folder/$folder"
done
