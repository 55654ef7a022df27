#!/usr/bin/env bash
# What the command makes of a recorded allocator's settings: jobs of a few allocations, whose reserved memory follows
# from PyTorch's rules by hand.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# recording NAME CONFIGURATION SETTINGS JOB: SETTINGS are members of allocator_settings beside the text, as JSON. A JOB
# is sizes in MiB, allocated in turn; -N frees the N-th, from 1.
recording()
{
    python3 - "$scratch/$1.pickle" "$2" "$3" "$4" <<'END'
import json, pickle, sys
path, text, members, job = sys.argv[1:]
sizes, events = [], []
def add(action, number):
    events.append({"action": action, "addr": number << 40, "size": sizes[number - 1], "stream": 0, "time_us": len(events),
                   "frames": []})
for word in job.split():
    if word[0] == "-":
        add("free_requested", -int(word))
        add("free_completed", -int(word))
    else:
        sizes.append(int(float(word) * 2**20))
        add("alloc", len(sizes))
settings = {"PYTORCH_CUDA_ALLOC_CONF": text, "max_split_size": -1, "garbage_collection_threshold": 0.0}
settings.update(json.loads(members))
pickle.dump({"segments": [], "device_traces": [events], "allocator_settings": settings}, open(path, "wb"))
END
}

# reserves MIB NAME...: under policy torch, with nothing to say.
reserves()
{
    local mib=$1 name
    for name in "${@:2}"; do
        expect 0 replay --policy torch --repeat 1 --json - "$scratch/$name.pickle"
        [ -z "$err" ] || die "$name: $err"
        json "[row['peak_reserved'] / 2**20 for row in rows] == [$mib]"
    done
}

# White space counts nowhere in the text.
recording none "" '{}' 5
recording tight "large_segment_size_mb:32" '{}' 5
recording loose " pinned_num_register_threads:2 , large_segment_size_mb : 32" '{}' 5
reserves 20 none
reserves 32 tight loose

# Divisions of all classes have a text that is longer than an option may be.
divisions=$(python3 -c 'import json
print(json.dumps({"roundup_power2_divisions": {str(1 << i): 4 if i == 5 else 1024 for i in range(16)}}))')
recording divisions "roundup_power2_divisions:[16:1024,32:4,>:1024]" "$divisions" 33
reserves 40 divisions

# What PyTorch allows is replayed: max_split_size as large as a segment, whose idle ones then serve no smaller request; a
# segment of any size.
recording split "max_split_size_mb:20" '{"max_split_size": 20971520}' "5 -1 6 21 -3 21.5"
reserves 62 split
recording segment "large_segment_size_mb:2048" '{}' 5
reserves 2048 segment
