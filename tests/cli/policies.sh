#!/usr/bin/env bash
# Policies that model other allocators, compared with what these reserved for the same jobs on an H200.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
need_traces

# Expandable segments and the driver's pool, of requested peaks (PyTorch 2.11, driver 580.159, 2026-11-20). The driver's
# page is 32 MiB, one part in 125 of the smallest peak.
while read -r trace expandable async within; do
    expect 0 replay --policy torch-expandable,async --json - "$DATA/traces/$trace.pickle.gz"
    [ -z "$err" ] || die "$trace: $err"
    json "[(row['trace'], row['policy'], row['backend'], row['oom']) for row in rows] == [
        ('$trace', 'torch-expandable', 'model', 0), ('$trace', 'async', 'model', 0)]"
    json "abs(rows[0]['fragmentation'] / $expandable - 1) < 0.0006"
    json "abs(rows[1]['fragmentation'] / $async - 1) < $within"
    json 'all(row["ns_per_op_cold"] is None and row["ns_per_op_warm"] is None for row in rows)'
    json 'not any(name in row for name in ("oom_warm", "peak_reserved_warm", "fragmentation_warm") for row in rows)'
done <<'END'
resnet50_amp 1.017 1.209 0.0006
gpt2_varlen 1.041 1.037 0.0006
gpt2_lora_recompute 1.134 1.060 0.0006
convnext_prefetch 1.045 1.203 0.017
graphsage 1.645 1.095 0.0081
END

# weir spends no more time in the driver than expandable segments, and next to nothing of the recorded runs.
expect 0 replay --policy weir,torch-expandable --repeat 1 --json - "$DATA"/traces/*.pickle.gz
json 'sum(row["driver_time_ns"] for row in rows[::2]) <= sum(row["driver_time_ns"] for row in rows[1::2])'
json 'sum(row["driver_time_ns"] for row in rows[::2]) < 0.005 * sum(
    row["driver_time_ns"] / row["driver_time_share"] for row in rows[1::2])'

small=$DATA/traces/graphsage.pickle.gz

# Every policy counts the same operations and the same requests, and reserves at least that.
expect 0 replay --policy all --repeat 1 --json - "$small"
json 'len(rows) >= 4 and len({row["policy"] for row in rows}) == len(rows)'
json 'all(row["operations"] == 9177 and row["peak_requested"] == 4013864116 and row["oom"] == 0 for row in rows)'
json 'all(row["peak_reserved"] >= row["peak_requested"] for row in rows)'
json 'all(row["driver_calls"] > 0 and row["driver_time_ns"] > 0 and row["driver_time_share"] > 0 for row in rows)'

# Options belong to the policy before them; the same policy may come with others.
expect 0 replay --policy torch-expandable:small-page=4MiB,page=64MiB,torch-expandable --json - "$small"
json '[row["policy"] for row in rows] == ["torch-expandable:small-page=4MiB,page=64MiB", "torch-expandable"]'
json 'rows[0]["driver_calls"] < rows[1]["driver_calls"]'
expect 0 replay --policy cub,rmm-pool:initial=1GiB,maximum=9GiB,cupy --json - "$small"
json '[row["policy"] for row in rows] == ["cub", "rmm-pool:initial=1GiB,maximum=9GiB", "cupy"]'

# Old and small snapshots.
for pickle in "$DATA"/pickles/*.pickle; do
    expect 0 replay --policy all --repeat 1 --json - "$pickle"
    json 'all(row["operations"] == rows[0]["operations"] and row["peak_requested"] == rows[0]["peak_requested"]
        for row in rows)'
done

# Running out of memory is a result.
expect 0 replay --policy all --repeat 1 --device-memory 2GiB --json - "$small"
json 'all(row["oom"] > 0 and row["peak_reserved"] <= 2 << 30 for row in rows)'
contains "$err" "of 2.00 GiB are already reserved"
expect 0 replay --policy bfc --repeat 1 --device-memory 1GiB --json - "$small" # regions that double, and are given back, many times over
json 'rows[0]["oom"] > 0 and rows[0]["peak_reserved"] <= 1 << 30'
WEIR_HOST_MEMORY=2GiB expect 0 replay --policy cupy --json - "$small"
json 'rows[0]["oom"] > 0'
WEIR_HOST_MEMORY=3gigs expect 1 replay --policy cupy --json - "$small"
contains "$err" 'WEIR_HOST_MEMORY is "3gigs", which is not a size from 2 MiB to 16 TiB'
WEIR_HOST_MEMORY=3gigs expect 0 replay --policy cupy --device-memory 20GiB "$small"

# What the host back end cannot have as devices the models have not either.
python3 - "$scratch/devices.pickle" <<'EOF'
import pickle, sys
events = [[dict(action="alloc", addr=1 << 21, size=512, stream=0, time_us=1)] for device in range(65)]
pickle.dump({"segments": [], "device_traces": events}, open(sys.argv[1], "wb"))
EOF
for policy in weir bfc async; do
    expect 1 replay --policy "$policy" "$scratch/devices.pickle"
    contains "$err" "the trace has 65 devices; at most 64 can be replayed"
done
expect 1 advise --device-memory 2GiB "$scratch/devices.pickle"
contains "$err" "at most 64 can be replayed"
