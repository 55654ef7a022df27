#!/bin/bash
# The typed getters agree with the vendors' headers, whichever comes first: check_vendor.sh INCLUDE SOURCES CC CXX
set -eu
include=$1 sources=$2/vendor cc=$3 cxx=$4
warnings=(-Wall -Wextra -Wshadow -Wstrict-aliasing=1 -pedantic -Werror)

# compile WHAT FLAGS...: both orders, both languages
compile()
{
    local what=$1 order
    shift
    for order in -UWEIR_FIRST -DWEIR_FIRST; do
        "$cc" -std=c11 -O2 "${warnings[@]}" -I"$include" "$@" $order -c "$sources/getters.c" -o getters.o
        "$cxx" -x c++ -std=c++17 -O2 "${warnings[@]}" -Wold-style-cast -I"$include" "$@" $order -c "$sources/getters.c" -o getters.o
    done
    echo "$what: agree"
}

compile "stand-in headers"
for folder in ${CUDA_HOME:+"$CUDA_HOME/include"} ${CUDA_PATH:+"$CUDA_PATH/include"} /usr/local/cuda/include /opt/cuda/include /usr/include; do
    if [ -e "$folder/cublas_v2.h" ] && [ -e "$folder/cusolverDn.h" ]; then
        compile "CUDA headers in $folder" -DVENDOR_CUDA -isystem "$folder"
        exit 0
    fi
done
echo "skipped: no CUDA headers"
