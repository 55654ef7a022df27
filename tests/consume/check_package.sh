#!/bin/bash
# Builds and tests a CMake project against an installed copy: check_package.sh PREFIX SOURCES VERSION CC CXX
set -eu
prefix=$1 sources=$2 version=$3 cc=$4 cxx=$5
rm -rf build
cmake -S "$sources/project" -B build -G Ninja -DCMAKE_PREFIX_PATH="$prefix" -DWEIR_WANTED="${version%.*}" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx"
cmake --build build
ctest --test-dir build --output-on-failure --no-tests=error
# The next minor version may break callers, so asking for it must not find this one.
major=${version%%.*} minor=${version#*.} minor=${minor%%.*}
if cmake -S "$sources/project" -B wrong -DCMAKE_PREFIX_PATH="$prefix" -DWEIR_WANTED="$major.$((minor + 1))" >wrong.log 2>&1; then
    echo "find_package(weir $major.$((minor + 1))) found $version" >&2
    exit 1
fi
# A project of another language has no threads for CMake to look for.
mkdir -p other
cat >other/CMakeLists.txt <<END
cmake_minimum_required(VERSION 3.22)
project(other LANGUAGES NONE)
find_package(weir REQUIRED)
if(NOT TARGET weir::weir)
    message(FATAL_ERROR "find_package(weir) gave no weir::weir")
endif()
END
cmake -S other -B other/build -DCMAKE_PREFIX_PATH="$prefix"
