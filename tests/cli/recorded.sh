#!/usr/bin/env bash
# How the command applies a recorded allocator's settings: jobs of a few allocations, whose reserved memory is worked
# out by hand from PyTorch's rules.
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

# White space in the text is ignored.
recording none "" '{}' 5
recording tight "large_segment_size_mb:32" '{}' 5
recording loose " pinned_num_register_threads:2 , large_segment_size_mb : 32" '{}' 5
reserves 20 none
reserves 32 tight loose

# The text of divisions for all classes is longer than an option may be.
divisions=$(python3 -c 'import json
print(json.dumps({"roundup_power2_divisions": {str(1 << i): 4 if i == 5 else 1024 for i in range(16)}}))')
recording divisions "roundup_power2_divisions:[16:1024,32:4,>:1024]" "$divisions" 33
reserves 40 divisions

# Settings that PyTorch allows are replayed: max_split_size as large as a segment, whose idle segments then serve no smaller
# request; a segment of any size.
recording split "max_split_size_mb:20" '{"max_split_size": 20971520}' "5 -1 6 21 -3 21.5"
reserves 62 split
recording segment "large_segment_size_mb:2048" '{}' 5
reserves 2048 segment

recording strict "max_split_size_mb:64" '{"max_split_size": 67108864}' "200 -1 100"
recording rounding "max_split_size_mb:64,max_non_split_rounding_mb:101" '{"max_split_size": 67108864}' "200 -1 100"
recording rounded "max_split_size_mb:64,max_non_split_rounding_mb:100" '{"max_split_size": 67108864}' "200 -1 100"
reserves 300 strict rounded
reserves 200 rounding

# What the command line says goes before what was recorded, even where it says the default.
recording pages "large_segment_size_mb:40" '{}' 5
for page in ":page=20MiB" ":page=40MiB" ""; do
    expect 0 replay --policy "torch-expandable$page" --repeat 1 --json - "$scratch/pages.pickle"
    case $page in
    *20MiB) json "rows[0]['peak_reserved'] == 20 * 2**20" ;;
    *) json "rows[0]['peak_reserved'] == 40 * 2**20" ;;
    esac
done

# Settings that the library can only approximate are reported.
recording odd "large_segment_size_mb:15" '{}' 5
expect 0 replay --policy torch,weir --repeat 1 --json - "$scratch/odd.pickle"
json 'rows[0]["peak_reserved"] == 16 << 20'
contains "$err" "odd: recorded with large_segment_size_mb:15; policy torch uses 16, because its segments are multiples of 2 MiB"

# A setting that the library lacks makes only the comparison that needs it fail.
recording huge "large_segment_size_mb:1000000" '{}' "5 6 -1 7"
expect 1 replay --policy torch,weir --repeat 1 --json - "$scratch/huge.pickle"
json '[row["policy"] for row in rows] == ["weir"]'
contains "$err" "huge, policy torch: the recorded settings cannot be replayed: option large_segment"
WEIR_HOST_MEMORY=much expect 1 replay --policy torch "$scratch/none.pickle"
contains "$err" "none, policy torch: cannot open the library: option host_memory: \"much\" from WEIR_HOST_MEMORY is not valid"
expect 0 advise --json - "$scratch/huge.pickle"
json 'len(rows[0]["settings"]) == 10 and rows[0]["settings"][-1]["setting"] == "weir" and rows[0]["best"]'
contains "$err" "huge: 'large_segment_size_mb:1000000' is left out: the recorded settings cannot be replayed"
expect 1 view --policy recorded,torch,weir --json - -o "$scratch/huge.svg" "$scratch/huge.pickle"
json '[row["policy"] for row in rows] == ["recorded", "weir"]'
contains "$(<"$scratch/huge.svg")" "huge, weir"
contains "$err" "huge, policy torch: the recorded settings cannot be replayed"
expect 1 view --policy torch -o "$scratch/none.svg" "$scratch/huge.pickle"
[ ! -e "$scratch/none.svg" ] || die "nothing was drawn"

# A setting written with a space can be advised.
expect 0 advise --json - "$scratch/loose.pickle"
json 'rows[0]["settings"][-2]["setting"] == " pinned_num_register_threads:2 , large_segment_size_mb : 32"'
json 'rows[0]["settings"][-2]["peak_reserved"] == 32 << 20'

# Expandable segments follow the recorded divisions and segment size too: 17 times 5/4 MiB are more than one page.
seventeen=$(printf '1.1 %.0s' {1..17})
fours=$(python3 -c 'import json
print(json.dumps({"expandable_segments": True, "roundup_power2_divisions": {str(1 << i): 4 for i in range(16)}}))')
recording expandable "expandable_segments:True,roundup_power2_divisions:4" "$fours" "$seventeen"
expect 0 replay --policy torch-expandable,cub --json - "$scratch/expandable.pickle"
json 'rows[0]["peak_reserved"] == 40 << 20 and rows[1]["peak_reserved"] == 2 * 17 << 20'
recording page "expandable_segments:True,large_segment_size_mb:64" '{"expandable_segments": true}' "$seventeen"
expect 0 replay --policy torch-expandable,torch-expandable:page=32MiB --json - "$scratch/page.pickle"
json '[row["peak_reserved"] >> 20 for row in rows] == [64, 32]'

# A recorded fraction is a limit of policy torch, below which it collects. Without one there is no limit, however much
# memory there is, and the rules are those without a limit.
recording limited "per_process_memory_fraction:0.25" '{}' 300
expect 0 replay --policy torch,weir --device-memory 1GiB --repeat 1 --json - "$scratch/limited.pickle"
json '[row["oom"] for row in rows] == [1, 0]'
contains "$err" "The device has 1024.00 MiB, 1024.00 MiB free; the limit is 256.00 MiB"
expect 0 replay --policy torch,weir --repeat 1 --json - "$scratch/limited.pickle"
json '[row["oom"] for row in rows] == [0, 0]'
recording short "" '{}' "200 100"
expect 0 replay --policy torch,weir --device-memory 256MiB --repeat 1 "$scratch/short.pickle"
contains "$err" "The device has 256.00 MiB, 56.00 MiB free; there is no limit."
WEIR_MEMORY_LIMIT=320MiB expect 0 replay --policy torch --repeat 1 --json - "$scratch/limited.pickle"
json 'rows[0]["oom"] == 0'
WEIR_MEMORY_LIMIT=200MiB expect 0 replay --policy torch --repeat 1 --json - "$scratch/limited.pickle"
contains "$err" "the limit is 200.00 MiB"
WEIR_MEMORY_LIMIT=200MiB expect 0 replay --policy torch,weir --device-memory 2GiB --repeat 1 --json - "$scratch/limited.pickle"
json '[row["oom"] for row in rows] == [0, 0]'
recording impossible "per_process_memory_fraction:0" '{}' 5
expect 0 replay --policy torch --repeat 1 --json - "$scratch/impossible.pickle"
json 'rows[0]["oom"] == 1'

collecting='{"garbage_collection_threshold": 0.6}'
recording collected "garbage_collection_threshold:0.6,per_process_memory_fraction:0.25" "$collecting" "300 -1 310 320"
recording kept "garbage_collection_threshold:0.6" "$collecting" "300 -1 310 320"
for run in "collected 630" "kept 930"; do
    expect 0 replay --policy torch --device-memory 4000MiB --repeat 1 --json - "$scratch/${run% *}.pickle"
    json "rows[0]['peak_reserved'] == ${run#* } << 20"
done

# followed NAME CONFIGURATION SETTINGS EVENT...: as recording, with every event: ACTION:ADDRESS:MIB:STREAM.
followed()
{
    python3 - "$scratch/$1.pickle" "${@:2}" <<'END'
import json, pickle, sys
path, text, members, *words = sys.argv[1:]
names = {"take": ["segment_alloc"], "give": ["segment_free"], "alloc": ["alloc"],
         "free": ["free_requested", "free_completed"]}
events = []
for word in words:
    kind, address, mib, stream = word.split(":")
    for action in names[kind]:
        events.append({"action": action, "addr": int(address, 16), "size": int(float(mib) * 2**20), "stream": int(stream),
                       "time_us": len(events), "frames": []})
settings = {"PYTORCH_CUDA_ALLOC_CONF": text, "max_split_size": -1, "garbage_collection_threshold": 0.0}
settings.update(json.loads(members))
pickle.dump({"segments": [], "device_traces": [events], "allocator_settings": settings}, open(path, "wb"))
END
}

# Collection by age keeps small and young segments. With room left it looks like a program that empties its cache.
followed aged "garbage_collection_threshold:0.3,per_process_memory_fraction:0.5" '{"garbage_collection_threshold": 0.3}' \
    take:1000000:2:0 alloc:1000000:.5:0 free:1000000:.5:0 take:10000000:12:0 alloc:10000000:12:0 \
    take:20000000:14:0 alloc:20000000:14:0 take:30000000:60:0 alloc:30000000:60:0 free:30000000:60:0 \
    give:30000000:60:0 take:40000000:12:1 alloc:40000000:12:1 alloc:1000000:.5:0 take:50000000:60:1 alloc:50000000:60:1
expect 0 replay --policy torch --device-memory 200MiB --repeat 1 --reproduce --json - "$scratch/aged.pickle"
contains "$err" "aged: reproduced: 7 of 7 segment events"
json 'rows[0]["peak_reserved"] >> 20 == 100'
expect 0 replay --policy weir --device-memory 200MiB --repeat 1 --json - "$scratch/aged.pickle"
json 'rows[0]["oom"] == 0'

# Without a limit PyTorch does not collect by age, so a program with that threshold that gave memory back emptied its cache.
followed unlimited "garbage_collection_threshold:0.3" '{"garbage_collection_threshold": 0.3}' \
    take:10000000:60:0 alloc:10000000:60:0 take:20000000:60:0 alloc:20000000:60:0 free:10000000:60:0 give:10000000:60:0 \
    take:30000000:60:1 alloc:30000000:60:1
expect 0 replay --policy torch --repeat 1 --reproduce --json - "$scratch/unlimited.pickle"
json 'rows[0]["peak_reserved"] >> 20 == 120'

# With max_split_size, memory that is short makes the allocator give back large segments. If a smaller one goes first, all go.
followed emptied "max_split_size_mb:32" '{"max_split_size": 33554432}' \
    take:10000000:22:0 alloc:10000000:22:0 take:20000000:64:0 alloc:20000000:64:0 free:10000000:22:0 free:20000000:64:0 \
    give:10000000:22:0 give:20000000:64:0 take:30000000:40:0 alloc:30000000:40:0 take:40000000:60:0 alloc:40000000:60:0
expect 0 replay --policy torch --repeat 1 --reproduce --json - "$scratch/emptied.pickle"
json 'rows[0]["peak_reserved"] >> 20 == 100'

# The fraction is of the whole device, as in PyTorch: memory kept for the context is not subtracted.
expect 0 advise --device-memory 8GiB --context 7GiB --json - "$scratch/limited.pickle"
json '[s["fits"] for s in rows[0]["settings"]] == [True] * 11 and {s["card"] >> 30 for s in rows[0]["settings"]} == {8}'

# Ten pools, one after the other, of a recording by weir: what it unmaps it may have mapped elsewhere, but not what a private
# pool has left. The stream is the same in all.
python3 - "$scratch/pools.pickle" <<'END'
import pickle, sys
events = []
for pool in range(1, 11):
    for action, size in (("segment_map", 20), ("alloc", 18), ("free_requested", 18), ("free_completed", 18), ("segment_unmap", 20)):
        events.append({"action": action, "addr": pool << 40, "size": size << 20, "stream": 7, "time_us": len(events), "frames": [],
                       "pool_id": (0, pool)})
pickle.dump({"segments": [], "device_traces": [events], "allocator_settings": {}}, open(sys.argv[1], "wb"))
END
for policy in weir segments torch-expandable gmlake; do
    expect 0 replay --policy $policy --repeat 1 --json - "$scratch/pools.pickle"
    json "rows[0]['peak_reserved'] <= 20 << 20"
done
