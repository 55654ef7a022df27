#!/usr/bin/env bash
# weir-bench: options, tables and verdicts; with the figures that do not depend on the machine.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

WEIR=$(dirname "$WEIR")/weir-bench
[ -x "$WEIR" ] || { echo "weir-bench was not built"; exit 77; }

expect 0 --help
contains "$out" "usage: weir-bench"
contains "$out" "replay"
expect 2 nonsense
contains "$err" "there is no bench 'nonsense'"
expect 2 handles --threads 0
contains "$err" "--threads '0'"
expect 2 handles --backend gpu
contains "$err" "'gpu' is neither host nor cuda"
expect 2 handles --peer file,VARIABLE
contains "$err" "FILE,VARIABLE=VALUE"

expect 0 handles --threads 1 --peer "$scratch/none.so"
contains "$out" "stand-in "
contains "$out" "handle get, hit, explicit, 1 thread"
contains "$err" "none.so is left out"

build_peer() {
    "${CC:-cc}" -shared -fPIC -I "$here/../../bench" -I "$here/../../include" -o "$scratch/$1.so" "$scratch/$1.c"
}

# A peer that dies in its turn ends neither the others nor the table.
cat >"$scratch/dies.c" <<'END'
#include "peer.h"
#include <stdlib.h>
static void *get(weir_handle_kind kind, uint64_t stream)
{
    (void)kind, (void)stream;
    abort();
}
const bench_peer *bench_peer_get(void)
{
    static const bench_peer peer = { .version = BENCH_PEER_VERSION, .name = "dies", .handle = get };
    return &peer;
}
END
build_peer dies
expect 1 handles --threads 1 --peer "$scratch/dies.so"
contains "$err" "handles was ended by signal 6"
contains "$out" "mutex map/weir"
contains "$out" "handle get, hit, implicit, 1 thread"

# Of its calls, half of which free, each other one takes 100 us at least.
cat >"$scratch/sleeps.c" <<'END'
#include "peer.h"
#include <stdlib.h>
#include <time.h>
static void *make(size_t bytes, uint64_t stream)
{
    (void)bytes, (void)stream;
    nanosleep(&(struct timespec){ .tv_nsec = 100000 }, NULL);
    return malloc(1);
}
static void drop(void *pointer, uint64_t stream)
{
    (void)stream;
    free(pointer);
}
const bench_peer *bench_peer_get(void)
{
    static const bench_peer peer = { .version = BENCH_PEER_VERSION, .name = "sleeps", .alloc = make, .release = drop };
    return &peer;
}
END
build_peer sleeps
expect 0 tails --threads 1 --peer "$scratch/sleeps.so"
contains "$out" "the clock alone, 99.99 % within"
awk '/^512 B, 99 % within/ { for (i = 6; i <= NF; i++) slow += $i >= 100000 } END { exit slow < 1 }' "$scratch/out" ||
    die "no call of the peer is said to take 100 us: $out"

expect 0 replay
contains "$out" "no trace was given"
expect 1 replay "$scratch/none.pickle"
contains "$err" "none.pickle"
need_traces
# PyTorch's own rules reserve as much as the recording did: 1.190 times the requested bytes.
expect 0 replay "$DATA/traces/resnet50_amp.pickle.gz"
row=$(grep "weir, torch rules" "$scratch/out") || die "no row of weir with PyTorch's rules: $out"
case $row in
*" 2.97 GiB  3.54 GiB  1.190  3.54 GiB  1.190 "*" 0") ;;
*) die "not what was recorded: $row" ;;
esac
contains "$out" "peak reserved / peak requested, worst trace"
