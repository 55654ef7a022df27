#!/bin/bash
# Where files are installed when the folders given are absolute, as with Nix and Guix: check_folders.sh SOURCE CC
set -eu
source=$1 cc=$2
expect()
{
    [ "$2" = "$3" ] && return
    echo "$1 is $2 instead of $3" >&2
    exit 1
}

# Checks a copy that was installed and then moved: check LIBDIR INCLUDEDIR RPATH OPTION...
check()
{
    rm -rf build moved
    cmake -S "$source" -B build -G Ninja -DCMAKE_C_COMPILER="$cc" -DCMAKE_INSTALL_PREFIX=/opt/weir -DWEIR_TESTS=OFF \
        -DWEIR_BENCH=OFF -DWEIR_ADAPTERS=OFF "${@:4}" >configure.log
    mkdir -p moved/lib/pkgconfig
    cp build/weir.pc moved/lib/pkgconfig
    export PKG_CONFIG_PATH=$PWD/moved/lib/pkgconfig
    expect libdir "$(realpath -m "$(pkg-config --variable=libdir weir)")" "$1"
    expect includedir "$(realpath -m "$(pkg-config --variable=includedir weir)")" "$2"
    expect "the command's path" "$(sed -n 's/^ *NEW_RPATH "\\\{0,1\}\([^"]*\)")$/\1/p' build/cmake_install.cmake)" "$3"
}

libdir=-DCMAKE_INSTALL_LIBDIR includedir=-DCMAKE_INSTALL_INCLUDEDIR bindir=-DCMAKE_INSTALL_BINDIR
# shellcheck disable=SC2016 # the loader's $ORIGIN
check "$PWD/moved/lib" "$PWD/moved/include" '$ORIGIN/../../lib' $libdir=lib $bindir=libexec/weir
# shellcheck disable=SC2016
check "$PWD/moved/lib" /opt/headers '$ORIGIN/../lib' $libdir=lib $includedir=/opt/headers
check /opt/libraries/lib /opt/headers /opt/libraries/lib $libdir=/opt/libraries/lib $includedir=/opt/headers
check /opt/libraries/lib /opt/weir/include /opt/libraries/lib $libdir=/opt/libraries/lib
echo "folders: good"
