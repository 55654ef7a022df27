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
