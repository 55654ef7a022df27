#!/bin/bash
# The shared libraries are what the documentation promises: check_elf.sh LIBRARY INCLUDE [ADAPTERS]
set -eu
library=$1 include=$2 adapters=${3-}
fail()
{
    echo "$*" >&2
    exit 1
}

needed=$(readelf -dW "$library" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
for name in $needed; do
    case $name in
    libc.so.6 | libpthread.so.0 | libdl.so.2 | ld-linux*) ;;
    *) fail "$library needs $name; libc, pthread and dl are all it may need" ;;
    esac
done

soname=$(readelf -dW "$library" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
major=$(sed -n 's/^#define WEIR_VERSION_MAJOR //p' "$include/weir/weir.h")
[ "$soname" = "libweir.so.$major" ] || fail "soname is '$soname', not libweir.so.$major"

nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u >exported
grep -hv "^#" "$include"/weir/*.h | tr '\n' ' ' | grep -oE 'WEIR_API [^;(]*\(' | grep -oE '\w+\($' | tr -d '(' | sort -u >declared
[ -s declared ] || fail "no WEIR_API declarations found in $include/weir"
diff -u declared exported || fail "what the headers declare (-) is not what the library exports (+)"

if [ "$adapters" ]; then
    others=$(nm -D --defined-only "$adapters" | awk '$3 !~ /^weir_/ { print $3 }')
    [ -z "$others" ] || fail "$adapters exports more than weir's own: $others"
fi

readelf -dW "$library" | grep -q TEXTREL && fail "the library has text relocations"

# A program has little room for thread-local data of libraries that are loaded late (glibc: some 1.6 KiB for all of
# them), and initial-exec data must fit in it.
tls=$((16#$(readelf -lW "$library" | awk '$1 == "TLS" { print substr($6, 3); found = 1 } END { if (!found) print 0 }')))
((tls <= 512)) || fail "$tls bytes of thread-local data, 512 allowed: keep big parts behind a pointer"
echo "needs: ${needed//$'\n'/, }; $(wc -l <exported) functions; $tls bytes of thread-local data"
