#!/bin/bash
# Every public header compiles alone, twice in a row, without a warning: check_headers.sh INCLUDE CC CXX
set -eu
include=$1 cc=$2 cxx=$3
for header in "$include"/weir/*.h; do
    name=weir/${header##*/}
    printf '#include <%s>\n#include <%s>\n' "$name" "$name" >header.c
    "$cc" -std=c11 -Wall -Wextra -Wstrict-prototypes -Wundef -pedantic -Werror -I"$include" -fsyntax-only header.c
    "$cxx" -x c++ -std=c++17 -Wall -Wextra -Wundef -Wold-style-cast -Wzero-as-null-pointer-constant -pedantic -Werror \
        -I"$include" -fsyntax-only header.c
    echo "$name"
done
