#!/usr/bin/env bash
# What weir advise recommends for recorded jobs, and what it says when the card is too small.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
need_traces

small=$DATA/traces/graphsage.pickle.gz

# PyTorch's default reserves four times what this job asks for; the advice is another setting, and a line to use it.
expect 0 advise "$small"
[ -z "$err" ] || die "$err"
contains "$out" "graphsage: 9177 operations; 614 MiB of each card are kept for the context"
contains "$out" "PYTORCH_CUDA_ALLOC_CONF='backend:cudaMallocAsync'    (PYTORCH_ALLOC_CONF in newer releases)"
contains "$out" "weir.torch.install()"
contains "$out" "
SETTING                      CARD  RESERVED     WASTE   RATIO    DRIVER
default                     8 GiB  15.4 GiB  11.6 GiB   4.109   "
contains "$out" "held on the second half: yes, 1.0"
[[ $out != *garbage_collection_threshold* && $out != *FITS* ]] || die "advice for a device that was not given: $out"

expect 0 advise --json - "$small"
json 'len(rows) == 1 and rows[0]["trace"] == "graphsage" and rows[0]["operations"] == 9177'
json 'rows[0]["device_memory"] is None and rows[0]["context"] == 644245094'
json '[s["setting"] for s in rows[0]["settings"]][::9] == ["default", "weir"]'
json 'abs(rows[0]["settings"][0]["fragmentation"] - 4.109) < 0.001'
json 'all(s["fits"] and s["card"] >= 8 << 30 and s["driver_time_ns"] > 0 for s in rows[0]["settings"])'
json 'all(s["peak_reserved"] - s["waste"] == 4013864116 for s in rows[0]["settings"])'
json 'rows[0]["second_half"]["chosen"] == "backend:cudaMallocAsync" and rows[0]["second_half"]["held"]'
json 'rows[0]["second_half"]["better"] is None and 1 < rows[0]["second_half"]["fragmentation"] < 1.1'

# The best setting of the first half is not the best of the second when another one reserves over 1 % less there, even if
# that one takes more of the driver's time than the named one.
python3 - "$scratch/halves.pickle" <<'END'
import pickle, sys
MIB = 1 << 20
events = []
def add(action, at, size):
    events.append({"action": action, "addr": at << 30, "size": size, "stream": 0, "time_us": len(events), "frames": []})
for i in range(14):
    for action in "alloc", "free_requested", "free_completed":
        add(action, i + 1, (209 + i) * MIB)
for i in range(29):
    add("alloc", 101 + i, 220 * MIB + 512)
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
END
expect 0 advise --json - "$scratch/halves.pickle"
json 'rows[0]["second_half"]["chosen"] == "roundup_power2_divisions:8" and not rows[0]["second_half"]["held"]'
json 'rows[0]["second_half"]["better"] == "default"'

# For a recording that began late it says how many blocks have no beginning.
python3 - "$small" "$scratch/late.pickle" <<'END'
import gzip, pickle, sys
snapshot = pickle.load(gzip.open(sys.argv[1]))
snapshot["device_traces"] = [events[len(events) * 9 // 10:] for events in snapshot["device_traces"]]
pickle.dump(snapshot, open(sys.argv[2], "wb"))
END
expect 0 advise "$scratch/late.pickle"
contains "$out" "40 residents: blocks from before the first event, which are allocated first; the recorded allocator held \
up to 15.4 GiB; earlier peaks are not known"
expect 0 advise --json - "$scratch/late.pickle"
json 'rows[0]["residents"] == 40'

# For a trace that makes no sense the advice comes with a warning.
printf '%s\n' Thread,Time,Action,Pointer,Size,Stream 1,10:00:01,allocate,0x1000,512,0x0 1,10:00:02,allocate,0x1000,512,0x0 \
    >"$scratch/twice.csv"
expect 0 advise "$scratch/twice.csv"
contains "$out" "1 anomalies: events that contradict earlier ones; 'weir check' lists them"
expect 0 advise --json - "$scratch/twice.csv"
json 'rows[0]["anomalies"] == 1'

# Of equal peaks the one counts that takes the least of the driver's time.
python3 - "$scratch/alike.pickle" <<'END'
import pickle, sys
events = [{"action": "alloc", "addr": i + 1 << 30, "size": 10 << 20, "stream": 0, "time_us": i} for i in range(1000)]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
END
expect 0 advise --json - "$scratch/alike.pickle"
json 'all(s["peak_reserved"] < 1.01 * rows[0]["settings"][0]["peak_reserved"] for s in rows[0]["settings"])'
json 'min(rows[0]["settings"][:-1], key=lambda s: s["driver_time_ns"])["setting"] == rows[0]["best"] == "backend:cudaMallocAsync"'

# The best of PyTorch's settings has the smallest peak, or one within 1 % of it and less time in the driver.
expect 0 advise --json - "$DATA"/traces/*.pickle.gz
json 'len(rows) == 5'
json 'all(min(s["peak_reserved"] for s in row["settings"][:-1]) * 1.01 >=
    [s["peak_reserved"] for s in row["settings"] if s["setting"] == row["best"]][0] for row in rows)'
json '{row["trace"]: row["best"] for row in rows}["gpt2_varlen"] == "expandable_segments:True"'
json 'min(rows[2]["settings"][:-1], key=lambda s: s["peak_reserved"])["setting"] == "backend:cudaMallocAsync"'

# The card is the one that the job ran on; the default's peak on it is smaller than its peak without a limit.
json 'all(s["card"] - row["context"] >= s["peak_reserved"] - s["waste"] for row in rows for s in row["settings"])'
json 'rows[3]["settings"][0]["card"] < rows[3]["settings"][0]["peak_reserved"]'

# On a card of 6 GiB one setting fails, the others do not; each agrees with a replay on what is left of the card.
expect 0 advise --device-memory 6GiB --context 1GiB --json - "$small"
json 'all(s["fits"] == (s["failed_operation"] is None) == (s["peak_reserved"] is not None) for s in rows[0]["settings"])'
json 'all(s["peak_reserved"] <= 5 << 30 for s in rows[0]["settings"] if s["fits"])'
failed=$(python3 -c 'import json, sys
print(*(int(not s["fits"]) for s in json.load(open(sys.argv[1]))[0]["settings"] if s["setting"] in (
    "default", "expandable_segments:True", "backend:cudaMallocAsync", "weir")))' "$scratch/out")
expect 0 replay --policy torch,torch-expandable,async,weir --repeat 1 --device-memory 5GiB --json - "$small"
json "[int(row['oom'] > 0) for row in rows] == [int(word) for word in '$failed'.split()]"

# On too small a device it says where the job fails, and what would be enough.
expect 0 advise --device-memory 2GiB "$small"
contains "$out" "out of memory at operation 32"
contains "$out" "no setting fits"
contains "$out" "A card of 8 GiB would do, with default."
contains "$out" " at its peak, and 1.40 GiB are left beside the context: no setting can make it fit."
expect 0 advise --device-memory 2GiB --json - "$small"
json 'rows[0]["best"] is None and all(s["peak_reserved"] is None and s["failed_operation"] == 32
    for s in rows[0]["settings"])'

# A job that is too large for every common card is told so, whether or not a device is named.
cat >"$scratch/huge.csv" <<END
Thread,Time,Action,Pointer,Size,Stream
1,00:00:00.000001,allocate,0x7f0000000000,300000000000,0
1,00:00:01.000001,free,0x7f0000000000,300000000000,0
END
expect 0 advise "$scratch/huge.csv"
contains "$out" "The job uses 279 GiB at its peak, and 179 GiB are left beside the context on the largest common card: no setting"
contains "$out" "No common card would do."
expect 0 advise --device-memory 24GiB "$scratch/huge.csv"
contains "$out" "The job uses 279 GiB at its peak, and 23.4 GiB are left beside the context: no setting"
contains "$out" "No common card would do."

# The recorded setting is tried too, under its own text, unless it is one of those above.
with_settings()
{
    python3 - "$small" "$scratch/$1.pickle" "$2" "$3" <<'END'
import gzip, pickle, sys
snapshot = pickle.load(gzip.open(sys.argv[1]))
snapshot["allocator_settings"].update(PYTORCH_CUDA_ALLOC_CONF=sys.argv[3], max_split_size=int(sys.argv[4]) << 20)
pickle.dump(snapshot, open(sys.argv[2], "wb"))
END
}
with_settings own "max_split_size_mb:128,pinned_num_register_threads:2" 128
expect 0 advise --json - "$scratch/own.pickle"
json 'rows[0]["settings"][-2]["setting"] == "max_split_size_mb:128,pinned_num_register_threads:2"'
json 'len({s["peak_reserved"] for s in rows[0]["settings"] if "max_split_size_mb:128" in s["setting"]}) == 1'
json 'rows[0]["settings"][-2]["peak_reserved"] != rows[0]["settings"][0]["peak_reserved"]'
with_settings known "max_split_size_mb:128" 128
expect 0 advise --json - "$scratch/known.pickle"
json '[s["setting"] for s in rows[0]["settings"]].count("max_split_size_mb:128") == 1'

# Of a card it is given a fraction of, the rest is of no use.
python3 - "$scratch/fraction.pickle" <<'END'
import pickle, sys
event = {"action": "alloc", "addr": 1 << 40, "size": 5 << 30, "stream": 0, "time_us": 1}
settings = {"PYTORCH_CUDA_ALLOC_CONF": "per_process_memory_fraction:0.5"}
pickle.dump({"segments": [], "device_traces": [[event]], "allocator_settings": settings}, open(sys.argv[1], "wb"))
END
expect 0 advise --json - "$scratch/fraction.pickle"
json '[s["card"] >> 30 for s in rows[0]["settings"] if s["setting"] == "per_process_memory_fraction:0.5"] == [12]'
json '[s["card"] >> 30 for s in rows[0]["settings"] if s["setting"] == "default"] == [8]'

# A text that changes nothing is no other setting.
with_settings same "expandable_segments:False" 0
expect 0 advise --json - "$scratch/same.pickle"
json 'len(rows[0]["settings"]) == 10'

# Each row is of what it names, whatever the library's options are.
expect 0 advise --json - "$small"
cp "$scratch/out" "$scratch/without.json"
WEIR_MAX_SPLIT_SIZE=64MiB WEIR_ROUNDUP_POWER2_DIVISIONS=2 WEIR_DEBUG=nosub expect 0 advise --json - "$small"
cmp "$scratch/out" "$scratch/without.json" || die "the environment changes what is advised"
WEIR_LOG=debug expect 0 advise --json - "$small"
[ -n "$err" ] || die "nothing is logged"

# Unless its text is no setting: as a line to paste it would be a command.
# shellcheck disable=SC2016 # is to stay as it is
with_settings hostile 'max_split_size_mb:100;touch ${IFS}hostile' 100
expect 0 advise "$scratch/hostile.pickle"
[[ $out != *touch* ]] || die "a command is advised: $out"

# With several devices the fullest decides, neither their sum nor the first.
python3 - "$scratch/devices.pickle" <<'END'
import pickle, sys
def event(at, size):
    return {"action": "alloc", "addr": (at + 1) << 34, "size": size << 30, "stream": 0, "time_us": at, "frames": []}
sizes = [[3], [5, 2], [6]]
pickle.dump({"segments": [], "device_traces": [[event(i, size) for i, size in enumerate(of)] for of in sizes]},
    open(sys.argv[1], "wb"))
END
expect 0 advise --json - "$scratch/devices.pickle"
json 'all((s["peak_reserved"] - s["waste"], s["card"], s["device"]) == (7 << 30, 8 << 30, 1) for s in rows[0]["settings"])'
json 'all(s["waste"] < 20 << 20 and s["fragmentation"] < 1.003 for s in rows[0]["settings"])'
python3 - "$scratch/alike.pickle" <<'END'
import pickle, sys
event = {"action": "alloc", "addr": 1 << 34, "size": 3 << 30, "stream": 0, "time_us": 1, "frames": []}
pickle.dump({"segments": [], "device_traces": [[event], [dict(event)]]}, open(sys.argv[1], "wb"))
END
expect 0 advise --json - "$scratch/alike.pickle"
json 'all(s["device"] == 0 for s in rows[0]["settings"])' # the first of equally full ones
expect 0 advise --device-memory 8GiB "$scratch/devices.pickle"
contains "$out" "several devices: RESERVED, WASTE and RATIO are of the fullest"
contains "$out" "weir: peak 7.00 GiB, 1.000 x what is requested"

# A request that failed in the recording must fit too, under the library and under models; a replay leaves it out and says so.
cat >"$scratch/failed.csv" <<'END'
Thread,Time,Action,Pointer,Size,Stream
1,10:00:01,allocate,0x7f0000000000,1073741824,0x0
1,10:00:02,allocate failure,0x0,21474836480,0x0
1,10:00:03,allocate failure,0x0,1073741824,0x0
END
expect 0 advise --device-memory 8GiB --json - "$scratch/failed.csv"
json 'rows[0]["refused"] == 2 and rows[0]["best"] is None'
json 'all((s["fits"], s["failed_operation"], s["card"] >> 30) == (False, 1, 24) for s in rows[0]["settings"])'
expect 0 advise --device-memory 8GiB "$scratch/failed.csv"
contains "$out" "2 allocations failed when recorded, the first of 20.0 GiB; a setting fits only with memory for them too"
contains "$out" "out of memory after operation 1 "
expect 0 advise --device-memory 24GiB --json - "$scratch/failed.csv"
json 'all(s["fits"] and s["peak_reserved"] >= 21 << 30 for s in rows[0]["settings"])'
# Of those the models, too, free each at once.
json '[s["peak_reserved"] < 22 << 30 for s in rows[0]["settings"] if s["policy"] in ("torch-expandable", "async")] == 2 * [True]'
expect 0 replay --repeat 1 --policy torch,torch-expandable,async,weir --device-memory 8GiB --json - "$scratch/failed.csv"
json 'all((row["oom"], row["refused"], row["peak_requested"]) == (0, 2, 1 << 30) for row in rows)'
contains "$err" "failed: 2 allocations failed when recorded, the first of 20.0 GiB; they are not replayed"

# Snapshots with residents, several devices and blocks that wait for streams all work; one without allocations is
# reported as such.
for pickle in "$DATA"/pickles/*.pickle; do
    weir advise --json - "$pickle"
    json 'all(s["fits"] or "refused" in row for row in rows for s in row["settings"])'
    [ "$code" = 0 ] || contains "$err" "nothing to advise"
done
expect 1 advise "$scratch/no-such-file"
contains "$err" "no-such-file"

# Nothing is to be set where PyTorch's default is best. The first half cannot show what the second one needs.
printf '%s\n' Thread,Time,Action,Pointer,Size,Stream 1,10:00:01,allocate,0x1000,1073741824,0x0 1,10:00:02,free,0x1000,1073741824,0x0 \
    1,10:00:03,allocate,0x1000,21474836480,0x0 1,10:00:04,free,0x1000,21474836480,0x0 >"$scratch/late.csv"
head -n 2 "$scratch/late.csv" >"$scratch/one.csv"
expect 0 advise "$scratch/one.csv"
contains "$out" "    leave PYTORCH_CUDA_ALLOC_CONF unset"
expect 0 advise --device-memory 8GiB "$scratch/late.csv"
contains "$out" "Chosen on the first half alone: default; held on the second half: no, nothing fits there"
expect 0 advise --device-memory 8GiB --json - "$scratch/late.csv"
json 'rows[0]["second_half"] == {"chosen": "default", "held": False, "fragmentation": None, "better": None}'

# Which recorded settings of the native allocator are another one, and that one is left out that the library does not have.
recorded()
{
    python3 - "$scratch/set.pickle" "$@" <<'END'
import pickle, sys
event = {"action": "alloc", "addr": 1 << 40, "size": 5 << 20, "stream": 0, "time_us": 1}
settings = dict({"PYTORCH_CUDA_ALLOC_CONF": sys.argv[2]}, **eval(sys.argv[3]))
pickle.dump({"segments": [], "device_traces": [[event]], "allocator_settings": settings}, open(sys.argv[1], "wb"))
END
    expect 0 advise --json - "$scratch/set.pickle"
}
recorded large_segment_size_mb:40 {}
json '[s["setting"] for s in rows[0]["settings"]][9:] == ["large_segment_size_mb:40", "weir"]'
recorded max_non_split_rounding_mb:32 {}
json '[s["setting"] for s in rows[0]["settings"]][9:] == ["max_non_split_rounding_mb:32", "weir"]'
recorded roundup_power2_divisions:2 '{"roundup_power2_divisions": {str(1 << i): 2 for i in range(16)}}'
json '[s["setting"] for s in rows[0]["settings"]][9:] == ["roundup_power2_divisions:2", "weir"]'
recorded garbage_collection_threshold:0.5 '{"garbage_collection_threshold": 0.5}'
json '[s["setting"] for s in rows[0]["settings"]][9:] == ["garbage_collection_threshold:0.5", "weir"]'
recorded expandable_segments:True,max_split_size_mb:200 '{"max_split_size": 200 << 20, "expandable_segments": True}'
json 'len(rows[0]["settings"]) == 10'
recorded backend:cudaMallocAsync,max_split_size_mb:200 '{"max_split_size": 200 << 20}'
json 'len(rows[0]["settings"]) == 10'
recorded max_split_size_mb:1 '{"max_split_size": 1 << 20}'
contains "$err" "weir advise: set: 'max_split_size_mb:1' is left out: "
json 'len(rows[0]["settings"]) == 10 and all(s["peak_reserved"] >= 5 << 20 for s in rows[0]["settings"])'

# A half that only frees cannot be checked.
cat >"$scratch/frees_last.csv" <<'END'
Thread,Time,Action,Pointer,Size,Stream
1,10:00:01,allocate,0x1000,1073741824,0x0
1,10:00:02,allocate,0x80000000,1073741824,0x0
1,10:00:03,free,0x1000,1073741824,0x0
1,10:00:04,free,0x80000000,1073741824,0x0
END
expect 0 advise --json - "$scratch/frees_last.csv"
json 'rows[0]["second_half"] is None'

# Nor can one that asks for nothing.
python3 - "$scratch/nothing.pickle" <<'END'
import pickle, sys
sizes = [1 << 20, 1 << 20, 0, 0]
events = [{"action": "alloc", "addr": i + 1 << 30, "size": size, "stream": 0, "time_us": i} for i, size in enumerate(sizes)]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
END
expect 0 advise "$scratch/nothing.pickle"
contains "$out" "Not checked: one half of the trace allocates nothing"
