#!/usr/bin/env bash
# weir check: leaks are reported but are no fault; every kind of fault is found and named.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

log()
{
    { echo 'Thread,Time,Action,Pointer,Size,Stream'
      local second=10
      for row in "$@"; do
          echo "1,10:00:$second.000,$row,0x0"
          second=$((second + 1))
      done; } >"$scratch/log.csv"
}
fault='rows[0]["unmatched_frees"], rows[0]["double_frees"], rows[0]["overlaps"], rows[0]["well_formed"]'

log allocate,0x1000,1024 allocate,0x2000,512 free,0x1000,1024
expect 0 check "$scratch/log.csv"
contains "$out" "log: well formed; rmm-csv, 4 events, 2 allocations, 1 frees"
contains "$out" "log: live at the end: 1 blocks, 512 B"
expect 0 check --json - "$scratch/log.csv"
json 'list(rows[0]) == ["trace", "format", "well_formed", "events", "allocations", "frees", "unmatched_frees",
    "double_frees", "overlaps", "incomplete_frees", "begins_late", "dropped", "residents", "stacks_lost",
    "live_blocks", "live_bytes", "stream_misuses", "segment_double_frees", "segment_overlaps", "outside_segments",
    "waiting_bytes", "left_out"]'
json 'rows[0]["live_blocks"] == 1 and rows[0]["live_bytes"] == 512 and rows[0]["incomplete_frees"] == 0'
json "($fault) == (0, 0, 0, True)"

log allocate,0x1000,1024 free,0x1000,1024 free,0x1000,1024
expect 1 check "$scratch/log.csv"
contains "$out" "event 3: second free: 0x1000"
contains "$out" "malformed"
expect 1 check --json - "$scratch/log.csv"
json "($fault) == (0, 1, 0, False)"

log allocate,0x1000,1024 free,0x9000,512
expect 1 check "$scratch/log.csv"
contains "$out" "event 1: free of an address that no allocation returned: 0x9000"
expect 1 check --json - "$scratch/log.csv"
json "($fault) == (1, 0, 0, False)"

# A log does not say that it began late; only frees of addresses that were never mentioned before suggest it.
log free,0x9000,512 free,0x9000,512 allocate,0x1000,1024 free,0x1200,512 free,0x8000,512
expect 1 check "$scratch/log.csv"
contains "$out" "log: 3 unmatched frees, 1 double frees, 0 overlaps
log: 2 of the unmatched frees are of addresses not seen before; if the recording began late,"
log allocate,0x1000,1024 free,0x1200,512
expect 1 check "$scratch/log.csv"
[[ $out != *"began late"* ]] || die "a free inside a block is taken for one from before: $out"

# A converted log is judged as the log itself, whose recorder leaves no kind of event out.
for events in "allocate,0x1000,1024 allocate,0x1000,1024" "free,0x1000,512 free,0x2000,512"; do
    # shellcheck disable=SC2086 # several events
    log $events
    expect 1 check "$scratch/log.csv"
    as_log=$out
    expect 0 convert "$scratch/log.csv" -o "$scratch/log"
    expect 1 check "$scratch/log"
    [ "${out//weir,/rmm-csv,}" = "$as_log" ] || die "judged differently once converted: $out; before: $as_log"
done

log allocate,0x1000,1024 free,0x1200,512
expect 1 check --json - "$scratch/log.csv"
json "($fault) == (1, 0, 0, False)"

log allocate,0x1000,1024 allocate,0x1200,512 allocate,0x1400,512
expect 1 check "$scratch/log.csv"
contains "$out" "event 1: allocation overlaps a block that was not freed: 0x1200"
expect 1 check --json - "$scratch/log.csv"
json "($fault) == (0, 0, 1, False)"
json 'rows[0]["live_blocks"] == 2'

log allocate,0x1000,1024 free,0x1000,1024 allocate,0x1200,512 allocate,0x1000,512
expect 0 check "$scratch/log.csv"

log free,0x1,1 free,0x2,1 free,0x3,1 free,0x4,1 free,0x5,1 free,0x6,1 free,0x7,1
expect 1 check "$scratch/log.csv"
[ "$(grep -c 'event' <<<"$(grep 'event [0-9]*:' <<<"$out")")" = 5 ] || die "more or less than five faults shown: $out"
contains "$out" "log: and 2 more faults"

# Blocks that a snapshot lists without any event are live too; it does not say how many events were lost.
python3 - "$scratch/late.pickle" <<'END'
import pickle, sys
base = 0x7f0000000000
events = [{"action": action, "addr": base + 8192, "size": 512, "stream": 0, "time_us": 1}
          for action in ("alloc", "free_requested", "free_completed")]
blocks = [{"address": base + at, "size": 4096, "requested_size": requested, "state": state} for at, requested, state in
          ((0, 4000, "active_allocated"), (4096, 0, "active_pending_free"), (8192, 0, "inactive"))]
segment = {"device": 0, "address": base, "total_size": 12288, "stream": 0, "segment_type": "small", "blocks": blocks}
pickle.dump({"segments": [segment], "device_traces": [events]}, open(sys.argv[1], "wb"))
END
expect 0 check "$scratch/late.pickle"
contains "$out" "late: the recording begins late: 0 frees of blocks that were allocated before it
late: frees never completed: 1 blocks, 4.00 KiB
late: live at the end: 1 blocks, 3.91 KiB"
expect 0 check --json - "$scratch/late.pickle"
json 'rows[0]["begins_late"] and rows[0]["dropped"] is None'
json '(rows[0]["live_blocks"], rows[0]["live_bytes"], rows[0]["incomplete_frees"]) == (2, 8096, 1)'
json 'rows[0]["waiting_bytes"] == 4096'
# Nor does it matter whether the request of such a block's free was recorded.
python3 - "$scratch/late.pickle" <<'END'
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
snapshot["device_traces"][0].append({"action": "free_requested", "addr": 0x7f0000001000, "size": 4096, "stream": 0, "time_us": 2})
pickle.dump(snapshot, open(sys.argv[1], "wb"))
END
expect 0 check --json - "$scratch/late.pickle"
json '(rows[0]["live_blocks"], rows[0]["live_bytes"], rows[0]["incomplete_frees"]) == (2, 8096, 1)'
json 'rows[0]["waiting_bytes"] == 4096 and rows[0]["residents"] == 1'

# A segment that no event took proves as much, even if all blocks from before were freed.
python3 - "$scratch/late.pickle" <<'END'
import pickle, sys
base = 0x7f0000000000
events = [{"action": action, "addr": base + at, "size": 512, "stream": 0, "time_us": 1}
          for at, action in ((512, "alloc"), (0, "free_requested"), (0, "free_completed"), (512, "free_requested"),
                             (512, "free_completed"))]
blocks = [{"address": base, "size": 12288, "requested_size": 0, "state": "inactive"}]
segment = {"device": 0, "address": base, "total_size": 12288, "stream": 0, "segment_type": "small", "blocks": blocks}
pickle.dump({"segments": [segment], "device_traces": [events]}, open(sys.argv[1], "wb"))
END
expect 0 check "$scratch/late.pickle"
contains "$out" "late: the recording begins late: 1 frees of blocks that were allocated before it"

# Segments are followed where they were recorded. take KIND:ADDRESS:SIZE... [-- ADDRESS:SIZE...]: a snapshot of such events, in MiB,
# that lists the segments behind the --.
take()
{
    python3 - "$scratch/taken.pickle" "$@" <<'END'
import pickle, sys
kinds = {"alloc": ["alloc"], "free": ["free_requested", "free_completed"], "take": ["segment_alloc"], "give": ["segment_free"],
         "map": ["segment_map"], "unmap": ["segment_unmap"]}
split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
events = []
for text in sys.argv[2:split]:
    kind, address, size = text.split(":")
    events += [{"action": action, "addr": int(address) << 20, "size": int(size) << 20, "stream": 0, "time_us": len(events)}
               for action in kinds[kind]]
listed = [[int(number) << 20 for number in text.split(":")] for text in sys.argv[split + 1:]]
segments = [{"device": 0, "address": address, "total_size": size, "stream": 0, "blocks": []} for address, size in listed]
pickle.dump({"segments": segments, "device_traces": [events]}, open(sys.argv[1], "wb"))
END
}
faults='rows[0]["segment_double_frees"], rows[0]["segment_overlaps"], rows[0]["outside_segments"]'

take take:100:40 alloc:100:1 free:100:1 give:100:40 give:100:40
expect 1 check "$scratch/taken.pickle"
contains "$out" "taken: event 5: second free of a segment: 0x6400000 (41943040 bytes, device 0)"
contains "$out" "taken: malformed; "
contains "$out" "taken: 1 double frees of segments, 0 overlaps of segments, 0 allocations outside all segments"
expect 1 check --json - "$scratch/taken.pickle"
json "($faults) == (1, 0, 0) and not rows[0]['well_formed']"

take take:100:40 take:120:40 alloc:100:1 take:200:2 give:200:2
expect 1 check "$scratch/taken.pickle"
contains "$out" "taken: event 1: segment overlaps one that was not freed: 0x7800000 (41943040 bytes, device 0)"
expect 1 check --json - "$scratch/taken.pickle"
json "($faults) == (0, 1, 0) and not rows[0]['well_formed']"

take take:100:40 alloc:200:2 alloc:139:2 -- 100:40
expect 1 check "$scratch/taken.pickle"
contains "$out" "taken: event 1: allocation outside all segments: 0xc800000 (2097152 bytes, device 0)"
contains "$out" "taken: event 2: allocation outside all segments: 0x8b00000 (2097152 bytes, device 0)"
expect 1 check --json - "$scratch/taken.pickle"
json "($faults) == (0, 0, 2) and not rows[0]['well_formed']"

# The same holds on each device by itself.
python3 - "$scratch/taken.pickle" <<'END'
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
for segment in snapshot["segments"]:
    segment["device"] = 1
snapshot["device_traces"] = [[], snapshot["device_traces"][0]]
pickle.dump(snapshot, open(sys.argv[1], "wb"))
END
expect 1 check "$scratch/taken.pickle"
contains "$out" "taken: event 1: allocation outside all segments: 0xc800000 (2097152 bytes, device 1)"

# Pieces mapped side by side belong to one segment, and memory that was given back can be taken again.
take map:100:20 map:120:20 alloc:110:20 free:110:20 unmap:120:20 map:120:2 alloc:119:2
expect 0 check "$scratch/taken.pickle"

# Events that PyTorch's recorder was told to leave out (skip_actions) show because the rest implies them: no fault, but nothing
# to compare a replay with.
left_out()
{
    local names=$1
    shift
    take "$@"
    expect 0 check "$scratch/taken.pickle"
    contains "$out" "taken: recorded without $names: 1 "
    contains "$out" "record without skip_actions"
    expect 0 check --json - "$scratch/taken.pickle"
    json "', '.join(rows[0]['left_out']) == '$names' and rows[0]['well_formed']"
    expect 1 check --reproduce "$scratch/taken.pickle"
    contains "$err" "there is nothing to compare"
    expect 0 replay --repeat 1 --policy torch,weir "$scratch/taken.pickle"
}
left_out segment_free take:100:40 alloc:100:40 free:100:40 take:120:40 alloc:120:2
left_out segment_alloc alloc:100:40 free:100:40 give:100:40 alloc:100:20 free:100:20 give:100:40
left_out "free_requested, free_completed" take:100:40 alloc:100:30 alloc:100:20
left_out alloc take:100:40 free:100:40 free:100:40
take take:100:40 alloc:100:40 free:100:40 give:100:40
expect 0 check --json - "$scratch/taken.pickle"
json 'rows[0]["left_out"] == []'

# They show once the snapshot is converted, too: it lists segments, or has settings, which a log has not.
take take:100:40 alloc:100:30 alloc:100:20 -- 100:40
for beside in segments settings; do
    [ "$beside" = segments ] || python3 - "$scratch/taken.pickle" <<'END'
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
snapshot.update(segments=[], allocator_settings={"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1})
pickle.dump(snapshot, open(sys.argv[1], "wb"))
END
    expect 0 convert "$scratch/taken.pickle" -o "$scratch/taken.weirtrace"
    expect 0 check "$scratch/taken.weirtrace"
    contains "$out" "taken: recorded without free_requested, free_completed: 1 "
done

# A block of 0 bytes is one.
take take:100:40 alloc:100:0 free:100:0
expect 0 check "$scratch/taken.pickle"

# A recording that began late has memory from before: blocks lie in it, and it may be given back, but only once.
take alloc:500:2 take:100:40 alloc:100:1 alloc:700:2
expect 0 check "$scratch/taken.pickle"
take give:500:20 take:100:40 alloc:100:1 alloc:700:2
expect 0 check "$scratch/taken.pickle"
take give:500:20 take:100:40 alloc:510:1 give:500:20
expect 1 check --json - "$scratch/taken.pickle"
json "($faults) == (1, 0, 1)"
take alloc:500:2 take:100:40 free:500:2 -- 100:40 500:20
expect 0 check "$scratch/taken.pickle"

# The same holds for a recording whose history was cleared meanwhile, which does not show.
take take:100:40 alloc:100:1 alloc:700:2
expect 0 check "$scratch/taken.pickle"

# The segments that a trace lists at the end, or that were given back, are all that existed, unless recording of what was given
# back was left out; without events of segments nothing is known of them.
take alloc:500:2 take:100:40 take:200:2 give:200:2 alloc:700:2 -- 100:40 500:20
expect 1 check --json - "$scratch/taken.pickle"
json "($faults) == (0, 0, 1)"
left_out segment_free alloc:500:2 take:100:40 alloc:700:2 -- 100:40 500:20
left_out segment_unmap alloc:500:2 map:100:40 alloc:700:2 -- 100:40 500:20
take alloc:500:2 alloc:700:2 -- 100:40
expect 0 check "$scratch/taken.pickle"

# Misuses that debug=streams found. make KIND:STREAM:ADDRESS:STACK...: writes a native trace of blocks of 1000 bytes.
make()
{
    python3 - "$scratch/made.weirtrace" "$@" <<'END'
import struct, sys
kinds = {"alloc": 1, "free": 2, "done": 3, "unrecorded": 13, "unordered": 14, "late": 15, "suspect": 16}
frames = [b"model.py:%d:step" % line for line in range(8)]
stacks = [range(1), range(1, 3), range(8)]
events = []
for time, text in enumerate(sys.argv[2:]):
    kind, stream, address, stack = text.split(":")
    events.append(struct.pack("<6Q2HII", time, int(address, 16), 1000, int(stream, 16), 0, 0, kinds[kind], 0, 1,
                              int(stack)))
data = struct.pack("<8s2H3I2Q2I2Q", b"weirtrc\n", 1, 3, 64, 60, 0, len(events), 0, len(frames), len(stacks), 0, 0)
data += b"".join(events) + b"".join(struct.pack("<I", len(frame)) + frame for frame in frames)
data += b"".join(struct.pack("<%dI" % (1 + len(stack)), len(stack), *stack) for stack in stacks)
open(sys.argv[1], "wb").write(data)
END
}
found='[(m["event"], m["kind"]) for m in rows[0]["stream_misuses"]], rows[0]["well_formed"]'

make alloc:5:1000:1 free:5:1000:0 done:5:1000:0 unrecorded:7:1000:2
expect 1 check "$scratch/made.weirtrace"
contains "$out" "made: event 3: the block at 0x1000 (1000 bytes, device 0, stream 0x5) was used on stream 0x7, which was not \
recorded: call weir_record_stream() before weir_free(), or allocate it on that stream
made: allocated: model.py:0:step
made: used: model.py:1:step, model.py:2:step
made: well formed; "
contains "$out" "made: uses of blocks on streams that they were not ordered with: 1, and 0 suspected"
expect 1 check --json - "$scratch/made.weirtrace"
json 'rows[0]["stream_misuses"] == [{"event": 3, "kind": "unrecorded_use", "address": 0x1000, "bytes": 1000, "device": 0,
    "stream": 7, "own_stream": 5, "frames": ["model.py:1:step", "model.py:2:step"], "allocated": ["model.py:0:step"]}]'
json 'rows[0]["well_formed"]'

make alloc:5:1000:1 unordered:7:1000:3 unordered:7:2000:0
expect 1 check "$scratch/made.weirtrace"
contains "$out" "used: model.py:0:step, model.py:1:step, model.py:2:step, model.py:3:step, model.py:4:step, model.py:5:step, ..."
contains "$out" "call weir_stream_wait() in between"
contains "$out" "event 2: the block at 0x2000 (1000 bytes, device 0) was used"
expect 1 check --json - "$scratch/made.weirtrace"
json "($found) == ([(1, 'unordered_use'), (2, 'unordered_use')], True)"
json 'rows[0]["stream_misuses"][1]["own_stream"] is None and rows[0]["stream_misuses"][1]["allocated"] == []'

# By then the address belongs to another block.
make alloc:9:1000:1 late:5:1000:2
expect 1 check --json - "$scratch/made.weirtrace"
json "($found) == ([(1, 'late_write')], True)"
json 'rows[0]["stream_misuses"][0]["stream"] == 5 and rows[0]["stream_misuses"][0]["own_stream"] is None'

# A suspicion is no fault.
make alloc:5:1000:1 suspect:7:1000:2
expect 0 check "$scratch/made.weirtrace"
contains "$out" "was freed while stream 0x7 was current"
contains "$out" "ordered with: 0, and 1 suspected"

# One misuse is shown for each place; of those without a known place, the first five.
make alloc:5:1000:1 unrecorded:7:1000:2 unrecorded:7:1000:2 unordered:7:1000:2 unrecorded:7:1000:3 unordered:7:1000:2
expect 1 check "$scratch/made.weirtrace"
[ "$(grep -c 'event [0-9]*:' <<<"$out")" = 3 ] || die "not three places: $out"
contains "$out" "ordered with: 5, and 0 suspected"
make late:7:1000:0 late:7:1000:0 late:7:1000:0 late:7:1000:0 late:7:1000:0 late:7:1000:0
expect 1 check "$scratch/made.weirtrace"
[ "$(grep -c 'event [0-9]*:' <<<"$out")" = 5 ] || die "not five: $out"

# A free that completes without a request is one of the unmatched ones.
make alloc:5:1000:1 done:5:1000:0
expect 1 check "$scratch/made.weirtrace"
contains "$out" "made: event 1: free completed that was never requested: 0x1000"
contains "$out" "made: 1 unmatched frees, 0 double frees, 0 overlaps"

# weir's own recordings say how many events and stacks were lost; the former show that the recording began late.
make free:5:1000:0 done:5:1000:0 alloc:5:2000:1
python3 - "$scratch/made.weirtrace" <<'END'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
struct.pack_into("<Q8xQ", data, 32, 7, 3)
open(sys.argv[1], "wb").write(data)
END
expect 0 check "$scratch/made.weirtrace"
contains "$out" "made: the recording begins late: 7 events lost, 1 frees of blocks that were allocated before it
made: call stacks left out for lack of room (raise WEIR_HISTORY_STACKS_KEPT): 3"
expect 0 check --json - "$scratch/made.weirtrace"
json '[rows[0][name] for name in ("begins_late", "dropped", "residents", "stacks_lost")] == [True, 7, 1, 3]'

# Where a recording has no frees, only its list tells what is live at the end.
python3 - "$scratch/unfreed.pickle" <<'END'
import pickle, sys
base = 0x7f0000000000
events = [{"action": "alloc", "addr": base + at, "size": 512, "stream": 0, "time_us": at} for at in (0, 4096, 0)]
blocks = [{"address": base + 4096, "size": 512, "requested_size": 512, "state": "active_allocated"}]
segment = {"device": 0, "address": base, "total_size": 2 << 20, "stream": 0, "segment_type": "small", "blocks": blocks}
pickle.dump({"segments": [segment], "device_traces": [events]}, open(sys.argv[1], "wb"))
END
expect 0 check "$scratch/unfreed.pickle"
contains "$out" "unfreed: live at the end: 1 blocks, 512 B"

# Why nothing could be compared is in the JSON, too.
log allocate,0x1000,1024 free,0x1000,1024
expect 1 check --reproduce --json - "$scratch/log.csv"
json 'rows[0]["not_compared"] == "there is nothing to compare: it has no segment events" and rows[0]["reproduced"] is None'

# made NAME SETTINGS ACTION:ADDRESS:MIB...: a recording of those events.
made()
{
    python3 - "$scratch/$1.pickle" "${@:2}" <<'END'
import pickle, sys
events = []
for action, place, mib in (word.split(":") for word in sys.argv[3:]):
    events.append({"action": action, "addr": int(place) << 30, "size": int(mib) << 20, "stream": 0, "time_us": len(events)})
pickle.dump({"segments": [], "device_traces": [events], "allocator_settings": eval(sys.argv[2])}, open(sys.argv[1], "wb"))
END
}

# A segment given back is not one taken, even of the same size.
made backwards {} segment_alloc:1:20 alloc:1:8 segment_free:1:20 alloc:2:20
expect 1 check --reproduce "$scratch/backwards.pickle"
contains "$out" "device 0 diverges at its segment event 1 of 2"

# When its free blocks were freed matters only to a recording that begins late.
made collected '{"garbage_collection_threshold": 0.5}' segment_alloc:1:20 alloc:1:8
expect 0 check --reproduce "$scratch/collected.pickle"
contains "$out" "reproduced: 1 of 1 segment events"
