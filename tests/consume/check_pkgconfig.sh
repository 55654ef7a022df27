#!/bin/bash
# Builds and runs the programs against an installed copy found by pkg-config: check_pkgconfig.sh PREFIX SOURCES CC CXX
set -eu
prefix=$1 sources=$2 cc=$3 cxx=$4
PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name weir.pc)")
export PKG_CONFIG_PATH
read -ra cflags <<<"$(pkg-config --cflags weir)"
read -ra libs <<<"$(pkg-config --libs weir)"
libdir=$(pkg-config --variable=libdir weir)
read -ra private <<<"$(pkg-config --static --libs weir)"
warnings=(-Wall -Wextra -pedantic -Werror)

"$cc" -std=c11 "${warnings[@]}" "${cflags[@]}" "$sources/program.c" -o c_shared "${libs[@]}" -Wl,-rpath,"$libdir"
for standard in 11 14 20; do
    "$cxx" -std=c++$standard "${warnings[@]}" "${cflags[@]}" "$sources/program.cpp" -fsyntax-only
done
"$cxx" -std=c++17 "${warnings[@]}" "${cflags[@]}" "$sources/program.cpp" -o cpp_shared "${libs[@]}" -Wl,-rpath,"$libdir" -pthread
# The archive by name: -lweir would take the shared library.
static=("${private[@]/#-lweir/$libdir/libweir.a}")
"$cc" -std=c11 "${warnings[@]}" "${cflags[@]}" "$sources/program.c" -o c_static "${static[@]}"
"$cxx" -std=c++17 "${warnings[@]}" "${cflags[@]}" "$sources/program.cpp" -o cpp_static "${static[@]}" -pthread
"$cc" -std=c11 -D_GNU_SOURCE "${cflags[@]}" "$sources/late.c" -o late -pthread -ldl

for program in c_shared cpp_shared c_static cpp_static; do
    ./$program
    echo "$program: good"
done
library="$libdir/libweir.so.$(pkg-config --modversion weir | cut -d. -f1)"
./late "$library"
./late "$library" open
[ "$("$prefix/bin/weir" --version 2>&1 | grep -oE '[0-9]+\.[0-9]+\.[0-9]+' | head -n 1)" = "$(pkg-config --modversion weir)" ]
echo "late: good; installed command runs"
