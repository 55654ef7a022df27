#!/usr/bin/env bash
# Recordings in which memory was short (tests/data/short): policy torch repeats every segment of them, with as much memory as
# there was, with more, and with a limit.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# repeats NAME EVENTS PEAK OPTION...
repeats()
{
    expect 0 replay --policy torch --repeat 1 --reproduce --json - "${@:4}" "$DATA/short/$1.pickle.gz"
    contains "$err" "$1: reproduced: $2 of $2 segment events"
    json "rows[0]['peak_reserved'] == $3 and rows[0]['oom'] == 0"
}

while read -r name mib events peak; do
    repeats "$name" "$events" "$peak"
    repeats "$name" "$events" "$peak" --device-memory "${mib}MiB"
    export WEIR_MEMORY_LIMIT=${mib}MiB
    repeats "$name" "$events" "$peak"
    unset WEIR_MEMORY_LIMIT
done <<'END'
plain 500 1200 524288000
ballast 700 449 654311424
split 700 2491 734003200
emptied 500 988 524288000
END

# Other jobs had the rest of the card by and by, so that memory was short although more had been held before, and the driver
# refused again after what max_split_size had chosen was enough.
repeats shared 172 28898754560

# Where a later pass has the memory that the recorded allocator made room for, what is idle goes all the same.
expect 0 replay --policy torch --repeat 3 --json - "$DATA/short/split.pickle.gz"
json "rows[0]['fragmentation_warm'] < 2"

# Below a limit that is lower than the recorded one it runs short by itself.
export WEIR_MEMORY_LIMIT=400MiB
weir replay --policy torch --repeat 1 --json - "$DATA/short/plain.pickle.gz"
json "rows[0]['peak_reserved'] <= 400 << 20 and rows[0]['oom'] > 0"
unset WEIR_MEMORY_LIMIT

# So it does with recordings of PyTorch's rules in Python, which empty the cache without saying so, in some.
python3 "$here/../torch_short.py" "$scratch" 60
for ((job = 0; job < 60; job++)); do
    expect 0 replay --policy torch --repeat 1 --reproduce "$scratch/job-$job.pickle"
done

# Also where allocations failed: what max_split_size chose for them went first, and then all.
python3 "$here/../torch_short.py" "$scratch" 30 460
for ((job = 0; job < 30; job++)); do
    expect 0 replay --policy torch --repeat 1 --reproduce --json - "$scratch/job-$job.pickle"
    json 'rows[0]["refused"] > 0 and rows[0]["oom"] == 0'
done

# And where other devices went on meanwhile.
python3 "$here/../torch_short.py" "$scratch" 20 460 3
for ((job = 0; job < 20; job++)); do
    expect 0 check --reproduce "$scratch/job-$job.pickle"
done

# What max_split_size chose was just enough, but the driver refused again, since others had come to hold more of the device.
python3 - "$here/.." "$scratch/enough.pickle" <<'END'
import pickle, random, sys
sys.path.insert(0, sys.argv[1])
from torch_short import MIB, Allocator
allocator = Allocator(200 * MIB, 32 * MIB, random.Random(1))
for block in [allocator.alloc(mib * MIB, 0) for mib in (40, 40, 12)]:
    allocator.free(block)
allocator.limit = 90 * MIB
allocator.alloc(80 * MIB, 0)
assert [event["size"] // MIB for event in allocator.events if event["action"] == "segment_free"] == [40, 40, 12]
settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": 32 * MIB, "garbage_collection_threshold": 0.0}
snapshot = {"segments": [], "device_traces": [allocator.events], "allocator_settings": settings}
pickle.dump(snapshot, open(sys.argv[2], "wb"))
END
expect 0 check --reproduce "$scratch/enough.pickle"
contains "$out" "reproduced: 7 of 7 segment events"

# The model of expandable segments runs short where they did, and comes to hold as much.
expect 0 replay --policy torch-expandable --repeat 1 --json - "$DATA/short/expandable.pickle.gz"
json "rows[0]['peak_reserved'] == 534773760 and rows[0]['oom'] == 0"

# Where native rules were short, other rules need not be.
expect 0 replay --policy torch-expandable --repeat 1 --json - "$DATA/short/plain.pickle.gz"
json "rows[0]['peak_reserved'] == 872415232 and rows[0]['oom'] == 0"

# It waits for uses on other streams when the device has no more.
python3 - "$scratch/waits.pickle" <<'EOF'
import pickle, sys
rows = [("alloc", 1, 40), ("free_requested", 1, 40), ("alloc", 2, 40), ("free_requested", 2, 40), ("free_completed", 2, 40),
        ("free_completed", 1, 40)]
events = [{"action": action, "addr": block << 40, "size": mib << 20, "stream": 0, "time_us": time}
          for time, (action, block, mib) in enumerate(rows)]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 replay --policy torch-expandable --repeat 1 --device-memory 60MiB --json - "$scratch/waits.pickle"
json "rows[0]['peak_reserved'] == 41943040 and rows[0]['oom'] == 0"

# However many uses there are, each is waited for once.
python3 - "$scratch/uses.pickle" <<'EOF'
import pickle, sys
rows = [(action, block) for block in range(200000) for action in ("alloc", "free_requested")] + [("free_completed", 0)]
events = [{"action": action, "addr": block << 30, "size": 40 << 20, "stream": 0, "time_us": time}
          for time, (action, block) in enumerate(rows)]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
timeout 15 "$WEIR" replay --policy torch-expandable --repeat 1 --device-memory 60MiB "$scratch/uses.pickle" >"$scratch/out"
