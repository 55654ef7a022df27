#!/usr/bin/env bash
# weir replay on recorded PyTorch jobs: what the contract promises about peaks, members, exit codes and streams.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
need_traces

# Peaks are PyTorch's own statistics of the recorded runs.
while read -r trace operations requested reserved; do
    expect 0 replay --policy torch --policy weir --repeat 1 --json - "$DATA/traces/$trace.pickle.gz"
    [ -z "$err" ] || die "$trace: $err"
    json 'all(list(row) == ["trace", "policy", "backend", "operations", "peak_requested", "peak_reserved",
        "fragmentation", "ns_per_op_cold", "ns_per_op_warm", "driver_calls", "driver_time_ns",
        "driver_time_share", "oom", "oom_warm", "peak_reserved_warm", "fragmentation_warm"] for row in rows)'
    json "[(row['trace'], row['policy'], row['backend']) for row in rows] == [('$trace', 'torch', 'host'),
        ('$trace', 'weir', 'host')]"
    json "all(row['operations'] == $operations and row['peak_requested'] == $requested for row in rows)"
    json "rows[0]['peak_reserved'] == $reserved"
    json 'all(abs(row["fragmentation"] - row["peak_reserved"] / row["peak_requested"]) < 1e-6 for row in rows)'
    json 'all(row["fragmentation_warm"] >= row["fragmentation"] for row in rows)'
    json 'all(row["fragmentation"] >= 1 and row["oom"] == 0 and row["driver_calls"] > 0 for row in rows)'
    json 'all(row["ns_per_op_cold"] > 0 and row["ns_per_op_warm"] > 0 for row in rows)'
    # A call to the driver takes from 19 ns to some milliseconds there, and the jobs ran for seconds.
    json 'all(row["driver_calls"] * 19 < row["driver_time_ns"] < row["driver_calls"] * 10**7 for row in rows)'
    json 'all(0 < row["driver_time_share"] < 0.1 for row in rows)'

    expect 0 replay --policy torch --repeat 1 --reproduce "$DATA/traces/$trace.pickle.gz"
    [[ $out =~ $trace:\ reproduced:\ ([0-9]+)\ of\ ([0-9]+)\ segment\ events ]] || die "$trace: $out"
    [ "${BASH_REMATCH[1]}" = "${BASH_REMATCH[2]}" ] || die "$trace: $out"
    expect 0 check --reproduce "$DATA/traces/$trace.pickle.gz"
    contains "$out" "${BASH_REMATCH[0]}"
done <<'END'
resnet50_amp 19373 3192592912 3797942272
gpt2_varlen 77915 24261888472 28546433024
gpt2_lora_recompute 143868 6680997208 10796138496
convnext_prefetch 43239 3487423400 4387241984
graphsage 9177 4013864116 16494100480
END

small=$DATA/traces/graphsage.pickle.gz

# Columns stand under their titles whatever characters a trace's name has.
cp "$small" réseau.pickle.gz
expect 0 replay --policy torch --repeat 1 réseau.pickle.gz
python3 -c 'import sys
title, row = sys.argv[1].splitlines()
assert title.index("POLICY") == row.index("torch"), (title, row)' "$out" || die "$out"

# Running out of memory is a result.
expect 0 replay --policy torch,weir --repeat 1 --device-memory 2GiB --json - "$small"
json 'all(row["oom"] > 0 and row["peak_reserved"] <= 2 << 30 for row in rows)'
contains "$err" "allocations failed; the first one:"

# A device with enough memory is no limit: the rules are as on any other.
expect 0 replay --policy torch,weir,segments --repeat 1 --json - "$small"
without=$(python3 -c 'import json, sys; print([row["peak_reserved"] for row in json.load(open(sys.argv[1]))])' "$scratch/out")
expect 0 replay --policy torch,weir,segments --repeat 1 --device-memory 20GiB --json - "$small"
json "[row['peak_reserved'] for row in rows] == $without"

# The same holds when the job is repeated.
expect 0 replay --policy torch --device-memory 23.7GiB --json - "$DATA/traces/gpt2_varlen.pickle.gz"
json '[row["oom"] for row in rows] == [0] and rows[0]["oom_warm"] > 0'
contains "$err" "allocations failed, in warm passes only; the first one:"

# Both policies by default, each once however often it is named, and in the order asked.
expect 0 replay --repeat 1 --json - "$small"
json '[row["policy"] for row in rows] == ["torch", "weir"]'
expect 0 replay --repeat 1 --policy weir,torch,weir --policy torch --json - "$small"
json '[row["policy"] for row in rows] == ["weir", "torch"]'

# Traces of one name in two folders are told apart by their paths, and only those.
mkdir -p monday tuesday
cp "$small" monday/
cp "$small" tuesday/
expect 0 replay --repeat 1 --policy torch --json - monday/graphsage.pickle.gz tuesday/graphsage.pickle.gz réseau.pickle.gz
json '[row["trace"] for row in rows] == ["monday/graphsage.pickle.gz", "tuesday/graphsage.pickle.gz", "réseau"]'
for command in check stat "plan -t 0"; do
    # shellcheck disable=SC2086 # a command with its options
    expect 0 $command --json - monday/graphsage.pickle.gz tuesday/graphsage.pickle.gz réseau.pickle.gz
    json 'list(dict.fromkeys(row["trace"] for row in rows)) == ["monday/graphsage.pickle.gz", "tuesday/graphsage.pickle.gz", "réseau"]'
done

# The command line beats the environment.
WEIR_POLICY=weir WEIR_HOST_MEMORY=4MiB WEIR_BACKEND=cuda expect 0 replay --repeat 1 --policy torch --device-memory 80GiB \
    --json - "$small"
json "[(row['policy'], row['peak_reserved'], row['oom']) for row in rows] == [('torch', 16494100480, 0)]"

# A table for people, and JSON in a file at once: the same figures.
expect 0 replay --repeat 1 --policy torch,cupy --device-memory 4GiB --json "$scratch/rows.json" "$small"
python3 - "$scratch/out" "$scratch/rows.json" <<'END'
import json, re, sys
titles, *lines = open(sys.argv[1]).read().splitlines()
rows = json.load(open(sys.argv[2]))
def gib(count):
    return f"{count / 2**30:.2f} GiB" if count < 10 << 30 else f"{count / 2**30:.1f} GiB"
def figure(value, text):
    return "-" if value is None else text.format(value)
for line, row in zip(lines, rows, strict=True):
    cells = re.split("  +", line)
    for at, time in (8, row["ns_per_op_cold"]), (9, row["ns_per_op_warm"]): # JSON has it rounded, to other digits
        assert (cells[at] == "-") == (time is None) and (time is None or cells[at].endswith(" ns")), (line, row)
        assert time is None or abs(float(cells[at][:-3]) - time) < 0.06, (line, row)
    assert cells[:8] + cells[10:] == [
        row["trace"], row["policy"], row["backend"], str(row["operations"]), gib(row["peak_requested"]),
        gib(row["peak_reserved"]), figure(row["fragmentation"], "{:.3f}"), figure(row.get("fragmentation_warm"), "{:.3f}"),
        str(row["driver_calls"]), f"{row['driver_time_ns'] / 1e6:.2f} ms", str(row["oom"])], (line, row)
assert re.split("  +", titles) == ["TRACE", "POLICY", "BACKEND", "OPERATIONS", "REQUESTED", "RESERVED", "RATIO",
    "WARM RATIO", "COLD/OP", "WARM/OP", "CALLS", "DRIVER", "OOM"]
assert rows[0]["oom"] > 0 and rows[0]["fragmentation_warm"] != rows[0]["fragmentation"]
END

# Peaks depend neither on the number of repetitions nor on earlier traces.
expect 0 replay --repeat 2 --policy torch,weir --json - "$small" "$small"
json '[row["peak_reserved"] for row in rows[:2]] == [row["peak_reserved"] for row in rows[2:]]'

# Nor what earlier policies and traces have overridden of the environment.
WEIR_HISTORY=100000 WEIR_PLAN=auto expect 0 replay --repeat 1 --policy learn,weir --json - "$small"
json '[row["policy"] for row in rows] == ["learn", "weir"]'
WEIR_PLAN=auto expect 0 replay --repeat 1 --policy torch,segments "$small" # which know no plans
python3 - "$scratch/large.csv" <<'END'
import sys
with open(sys.argv[1], "w") as log:
    print("Thread,Time,Action,Pointer,Size,Stream", file=log)
    for i in range(90):
        print(f"1,00:00:{i % 60:02}:000000,allocate,{hex((i + 1) << 32)},{1 << 30},0x0", file=log)
END
for order in "$small $scratch/large.csv" "$scratch/large.csv $small"; do
    # shellcheck disable=SC2086 # two names
    WEIR_MEMORY_LIMIT=4GiB expect 1 replay --repeat 1 --policy torch --reproduce --json - $order
    json '{row["trace"]: row["oom"] for row in rows} == {"graphsage": 4, "large": 86}'
done

expect 1 replay --backend hip "$small"
contains "$err" "weir replay: graphsage, policy torch: cannot open the library: "

# Where no statistics count the memory, that is said beside the zero.
WEIR_DEBUG=nosub expect 0 replay --repeat 1 --policy weir "$small"
contains "$err" "nothing was reserved: under WEIR_DEBUG=nosub no statistics count the memory"

# recorded SETTINGS SIZE...: a snapshot of such allocations, in MiB, with these settings.
recorded()
{
    python3 - "$scratch/recorded.pickle" "$@" <<'END'
import pickle, sys
events = [{"action": "alloc", "addr": at << 40, "size": int(size) << 20, "stream": 0, "time_us": 1}
          for at, size in enumerate(sys.argv[3:], 1)]
pickle.dump({"segments": [], "device_traces": [events], "allocator_settings": eval(sys.argv[2])}, open(sys.argv[1], "wb"))
END
}

# PyTorch's setting alone tells that the rules were others.
recorded '{"expandable_segments": True}' 5
expect 0 replay --repeat 1 --policy torch "$scratch/recorded.pickle"
contains "$err" "recorded: recorded with segments that grow by mapping"

# Nothing is reserved where nothing fitted either, which is no matter of WEIR_DEBUG.
recorded '{}' 300
expect 0 replay --repeat 1 --policy torch,weir --device-memory 150MiB "$scratch/recorded.pickle"
[[ $err != *nosub* ]] || die "$err"

# Failures of all warm passes are counted together.
recorded '{}' 300 200 100
expect 0 replay --repeat 3 --policy torch,weir --device-memory 150MiB --json - "$scratch/recorded.pickle"
json '[(row["oom"], row["oom_warm"]) for row in rows] == [(2, 6), (2, 6)]'

# What the first failure was is told. A model may have refused where there was room.
recorded '{}' 300 200 100
expect 0 replay --repeat 1 --policy torch,cupy --device-memory 150MiB "$scratch/recorded.pickle"
contains "$err" "policy torch: 2 allocations failed; the first one:
out of memory on device 0 (weir host device 0): asked for 300.00 MiB on stream 0."
contains "$err" "model: 300 MiB requested; 0 B of 150 MiB are already reserved"
[[ $err != *"own limits"* ]] || die "the device is taken for a limit: $err"
expect 0 replay --policy cupy:limit=150MiB "$scratch/recorded.pickle"
contains "$err" "model: 300 MiB requested; 0 B of 80.0 GiB are already reserved; the model's own limits refuse it"

# Figures that there are not are neither numbers nor nan.
printf '%s\n' Action,Pointer,Size allocate,0x1000,512 free,0x1000,512 >"$scratch/timeless.csv"
expect 0 replay --repeat 1 --policy torch,cupy "$scratch/timeless.csv"
[[ $out != *nan* ]] || die "$out"
expect 0 replay --repeat 1 --policy torch,cupy --json - "$scratch/timeless.csv"
json 'all(row["driver_time_share"] is None for row in rows)'

# What a model does at its start is one of its costs: here the only one.
expect 0 replay --policy rmm-arena --json - "$scratch/timeless.csv"
json 'rows[0]["driver_calls"] == 1 and rows[0]["driver_time_ns"] > 0'
