#!/bin/bash
# Builds and runs an example in another language against an installed copy: check_language.sh PREFIX SOURCE COMPILER...
# Exit 77: the compiler is not installed.
set -eu
prefix=$1 source=$2
shift 2
command -v "$1" >/dev/null || {
    echo "skipped: no $1 here"
    exit 77
}
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name weir.pc)")
export PKG_CONFIG_PATH
read -ra libs <<<"$(pkg-config --libs weir)"
"$@" "$source" -o program "${libs[@]}"
LD_LIBRARY_PATH=$(pkg-config --variable=libdir weir) ./program
