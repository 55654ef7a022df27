#!/bin/bash
# A project that adds weir's sources to its own gets the libraries alone, and needs nothing that only the command, the
# tests or the benchmarks need: check_subproject.sh SOURCE CC
set -eu
source=$1 cc=$2
rm -rf parent build bare narrow chosen
mkdir parent
cat >parent/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.22)
project(parent LANGUAGES C)
enable_testing()
add_custom_target(man)
set(CMAKE_UNITY_BUILD ON)
add_subdirectory($source weir)
add_executable(program program.c)
target_link_libraries(program PRIVATE weir::weir)
add_test(NAME program COMMAND program)
END
{
    cat "$source/examples/streams.c"
    printf '#if !__has_include(<weir/rmm.hpp>)\n#error "a header of the adapters is missing"\n#endif\n'
} >parent/program.c
cmake -S parent -B build -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_DISABLE_FIND_PACKAGE_ZLIB=ON \
    -DCMAKE_DISABLE_FIND_PACKAGE_PkgConfig=ON
tests=$(ctest --test-dir build -N | sed -n 's/^Total Tests: //p')
[ "$tests" = 1 ] || {
    echo "the project has $tests tests, of which one is its own" >&2
    exit 1
}
others=$(ninja -C build -t targets all | grep -E '^weir/(bin|man|tests|lib/libweir_)' || true)
[ -z "$others" ] || {
    echo "built beside the libraries: $others" >&2
    exit 1
}
grep -q '^CMAKE_BUILD_TYPE:[A-Z]*=.' build/CMakeCache.txt && {
    echo "weir chose how the project is built" >&2
    exit 1
}
grep -q '^BUILD_TESTING' build/CMakeCache.txt && {
    echo "weir brought its dashboard's targets" >&2
    exit 1
}
# With sanitizers of clang, which the project may choose for all of its parts, the program has what the library lacks.
ninja -C build -t commands weir/lib/libweir.so | grep -E -- '-z[ ,](-Xlinker )?defs' >&2 && {
    echo "the library does not link with the project's sanitizers" >&2
    exit 1
}
if cmake -S parent -B bare -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS=-nostdinc >bare.log 2>&1 || ! grep -q libbsd-dev bare.log; then
    echo "without the headers of libbsd it is not said that they are missing" >&2
    exit 1
fi
# Nothing is linked, so that headers and libraries of 32 bits are not needed.
if "$cc" -m32 -c -x c -o narrow.o /dev/null 2>/dev/null &&
    { cmake -S parent -B narrow -DCMAKE_C_COMPILER="$cc" -DCMAKE_C_FLAGS=-m32 \
        -DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY >narrow.log 2>&1 || ! grep -q "weir needs 64-bit" narrow.log; }; then
    echo "for 32 bits it is not said that weir needs 64" >&2
    exit 1
fi
cmake -S parent -B chosen -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_BUILD_TYPE=Release "-DCMAKE_C_FLAGS_RELEASE=-Os -DNDEBUG"
ninja -C chosen -t commands weir/lib/libweir.so | grep -q -- ' -Os ' || {
    echo "weir is not built with the flags that were chosen" >&2
    exit 1
}
echo "added to another project: good"
