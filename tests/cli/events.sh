#!/usr/bin/env bash
# weir replay on traces made here, event by event: pending frees, emptied caches, blocks from before, nonsense.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# make KIND:DEVICE:STREAM[/POOL]:ADDRESS:SIZE...: writes a native trace.
make()
{
    python3 - "$scratch/made.weirtrace" "$@" <<'END'
import struct, sys
kinds = {"alloc": 1, "free": 2, "done": 3, "segment": 4, "release": 5, "map": 6}
events = []
for time, text in enumerate(sys.argv[2:]):
    kind, device, stream, address, size = text.split(":")
    stream, _, pool = stream.partition("/")
    events.append(struct.pack("<6Q2HI", time, int(address, 16), int(size), int(stream, 16), 0, int(pool or 0),
                              kinds[kind], int(device), 1))
header = struct.pack("<8s2H3I2Q3Q", b"weirtrc\n", 1, 0, 64, 56, 0, len(events), 0, 0, 0, 0)
open(sys.argv[1], "wb").write(header + b"".join(events))
END
}
replay()
{
    expect 0 replay --policy torch,weir --repeat 2 --json - "$@" "$scratch/made.weirtrace"
}

mib=1048576
# A block that another stream still uses cannot be reused, so two are needed; once the free has completed, one is enough.
make alloc:0:0:1000:$((64 * mib)) free:0:0:1000:$((64 * mib)) alloc:0:0:9000:$((64 * mib)) done:0:0:1000:$((64 * mib)) \
    free:0:0:9000:$((64 * mib)) done:0:0:9000:$((64 * mib))
replay
json "all(row['peak_reserved'] == 128 * $mib and row['peak_requested'] == 128 * $mib for row in rows)"
json 'all(row["operations"] == 4 and "anomalies" not in row and "residents" not in row for row in rows)'
make alloc:0:0:1000:$((64 * mib)) free:0:0:1000:$((64 * mib)) done:0:0:1000:$((64 * mib)) alloc:0:0:1000:$((64 * mib)) \
    free:0:0:1000:$((64 * mib)) alloc:1:0:1000:$((64 * mib)) done:0:0:1000:$((64 * mib))
replay
json "all(row['peak_reserved'] == 128 * $mib for row in rows)"

# When memory is short the allocator waits for pending frees; the replay must go on, with nothing failed.
make alloc:0:0:1000:$((64 * mib)) free:0:0:1000:$((64 * mib)) alloc:0:0:9000:$((64 * mib)) done:0:0:1000:$((64 * mib))
replay --device-memory 64MiB
json "all(row['peak_reserved'] == 64 * $mib and row['oom'] == 0 for row in rows)"
# What is held is less than what was in use when recorded, then, and nothing of it is wasted.
expect 0 advise --device-memory 1088MiB --context 1GiB --json - "$scratch/made.weirtrace"
json "(rows[0]['settings'][0]['peak_reserved'], rows[0]['settings'][0]['waste']) == (64 * $mib, 0)"

# Uses end in the recorded order, also those of blocks that the replay had no memory for.
make alloc:0:0:1000:$((64 * mib)) alloc:0:0:9000:$((4096 * mib)) free:0:0:1000:$((64 * mib)) free:0:0:9000:$((4096 * mib)) \
    alloc:0:0:1:512 done:0:0:1000:$((64 * mib)) alloc:0:0:20000000:$((64 * mib)) done:0:0:9000:$((4096 * mib))
replay --device-memory 1GiB
json "all(row['peak_reserved'] == 66 * $mib and row['oom'] == 1 for row in rows)"

# And those that ended when memory was short, where the replay is short by itself.
make segment:0:0:1000:$((32 * mib)) alloc:0:0:1000:$((32 * mib)) segment:0:0:9000000:$((64 * mib)) \
    alloc:0:0:9000000:$((64 * mib)) free:0:0:9000000:$((64 * mib)) alloc:0:0:1:512 done:0:0:9000000:$((64 * mib)) \
    release:0:0:9000000:$((64 * mib)) segment:0:0:9000000:$((96 * mib)) alloc:0:0:9000000:$((96 * mib)) \
    alloc:0:0:20000000:$((10 * mib)) free:0:0:20000000:$((10 * mib)) alloc:0:0:2:512 done:0:0:20000000:$((10 * mib)) \
    alloc:0:0:30000000:$((10 * mib))
WEIR_MEMORY_LIMIT=60MiB expect 0 replay --policy torch --repeat 1 --json - "$scratch/made.weirtrace"
json "(rows[0]['peak_reserved'], rows[0]['oom']) == (44 * $mib, 2)" # 32, and one of 10 after the other

# The replay empties the cache where the program did. Giving memory back to make room is left to policy torch.
make segment:0:0:1000:$((64 * mib)) alloc:0:0:1000:$((64 * mib)) free:0:0:1000:$((64 * mib)) done:0:0:1000:$((64 * mib)) \
    release:0:0:1000:$((64 * mib)) alloc:0:0:1000:512
replay
json "all(row['driver_calls'] >= 3 for row in rows)"
expect 1 check --reproduce "$scratch/made.weirtrace"
contains "$out" "device 0 diverges at its segment event 2 of 2:"
contains "$out" "
      both      0: SEGMENT_ALLOC     67108864 bytes, stream 0
      both      1: SEGMENT_FREE      67108864 bytes, stream 0
  recorded      2: nothing more
  replayed      2: SEGMENT_ALLOC "
contains "$out" "made: reproduced: 2 of 2 segment events"
expect 1 replay --policy torch --repeat 1 --reproduce "$scratch/made.weirtrace"
make segment:0:0:1000:$((64 * mib)) alloc:0:0:1000:$((64 * mib)) free:0:0:1000:$((64 * mib)) done:0:0:1000:$((64 * mib)) \
    release:0:0:1000:$((64 * mib)) segment:0:0:1000:$((96 * mib)) alloc:0:0:1000:$((96 * mib))
replay
json "rows[0]['peak_reserved'] == 96 * $mib"
WEIR_HISTORY=1 expect 0 check --reproduce "$scratch/made.weirtrace" # which needs more of the library's history
contains "$out" "made: reproduced: 3 of 3 segment events"

# A device may have had segments that nothing was allocated from.
make segment:0:0:200000:$((2 * mib)) alloc:0:0:200000:512 segment:1:0:200000:$((2 * mib))
replay
json "[row['peak_reserved'] for row in rows] == [2 * $mib, 2 * $mib]"

# There are as many devices as in the trace, and a plan serves those that it has places for.
make alloc:0:0:1000:$((64 * mib))
expect 0 plan --time 0 -o "$scratch/first.weirplan" "$scratch/made.weirtrace"
make alloc:0:0:1000:$((64 * mib)) alloc:1:0:1000:$((64 * mib))
WEIR_HOST_DEVICES=1 expect 0 replay --policy torch,weir,plan:"$scratch/first.weirplan" --repeat 1 --json - "$scratch/made.weirtrace"
json "[row['peak_reserved'] for row in rows] == [128 * $mib] * 3 and rows[2]['plan']['served'] == 1"

# Segments that no device has the addresses for are put anywhere, and that is said.
make segment:0:0:200000:$((2 * mib)) alloc:0:0:200000:512 segment:0:0:40000000000:$((1 << 50))
replay
contains "$err" "policy torch: recorded segment addresses span too much to be repeated on device 0"

# When there is nothing to compare, the output says why, in JSON too.
make alloc:0:0:1000:512 free:0:0:1000:512 done:0:0:1000:512
expect 1 check --reproduce --json - "$scratch/made.weirtrace"
contains "$err" "made: there is nothing to compare: it has no segment events"
json '(rows[0]["segment_events"], rows[0]["reproduced"]) == (None, None)'
json 'rows[0]["not_compared"] == "there is nothing to compare: it has no segment events"'

# When segments grew by mapping, the native rules are not the recorded ones.
make map:0:0:1000:$((64 * mib)) alloc:0:0:1000:512 free:0:0:1000:512 done:0:0:1000:512
replay
contains "$err" "made: recorded with segments that grow by mapping (PyTorch's expandable_segments, weir's chunks); policy torch"
expect 0 replay --policy torch-expandable,weir --repeat 1 "$scratch/made.weirtrace"
[ -z "$err" ] || die "$err"

# Streams do not share blocks under policy torch, and segments are compared by the stream they were taken on.
make segment:0:7f00:1000:$((64 * mib)) alloc:0:7f00:1000:$((64 * mib)) free:0:7f00:1000:$((64 * mib)) \
    done:0:7f00:1000:$((64 * mib)) segment:0:0:9000000:$((64 * mib)) alloc:0:0:9000000:$((64 * mib))
replay
json "rows[0]['peak_reserved'] == 128 * $mib"
expect 0 check --reproduce "$scratch/made.weirtrace"

# Recorded on stream 0, but by the rules 7f00's: a segment of the right size in the right place is not enough.
make segment:0:0:1000:$((64 * mib)) alloc:0:0:1000:$((64 * mib)) segment:0:0:9000000:$((64 * mib)) \
    alloc:0:7f00:9000000:$((64 * mib))
expect 1 check --reproduce "$scratch/made.weirtrace"

# A cache of several streams is emptied in the order of their handles, whichever was used first.
make segment:0:9000:1000:$((64 * mib)) alloc:0:9000:1000:$((64 * mib)) segment:0:7f00:9000000:$((64 * mib)) \
    alloc:0:7f00:9000000:$((64 * mib)) free:0:9000:1000:$((64 * mib)) done:0:9000:1000:$((64 * mib)) \
    free:0:7f00:9000000:$((64 * mib)) done:0:7f00:9000000:$((64 * mib)) release:0:7f00:9000000:$((64 * mib)) \
    release:0:9000:1000:$((64 * mib))
expect 0 check --reproduce "$scratch/made.weirtrace"
contains "$out" "made: reproduced: 4 of 4 segment events"

# A private pool's blocks serve that pool only, whatever their stream.
make segment:0:0/1:1000:$((64 * mib)) alloc:0:0/1:1000:$((64 * mib)) free:0:0/1:1000:$((64 * mib)) \
    done:0:0/1:1000:$((64 * mib)) segment:0:0:9000000:$((64 * mib)) alloc:0:0:9000000:$((64 * mib)) \
    segment:0:0/2:20000000:$((64 * mib)) alloc:0:0/2:20000000:$((64 * mib)) alloc:0:0/1:1000:$((64 * mib))
replay
json "rows[0]['peak_reserved'] == 192 * $mib"
expect 0 check --reproduce "$scratch/made.weirtrace"
contains "$out" "made: reproduced: 3 of 3 segment events"

# A pool of the same name on another device is another one.
make alloc:0:0/1:1000:$((64 * mib)) alloc:1:0/1:1000:$((64 * mib))
replay
json "all(row['peak_reserved'] == 128 * $mib for row in rows)"

# The pool's idle memory stays when the cache is emptied, and goes when the recorded allocator gave it back.
make segment:0:0/1:1000:$((64 * mib)) alloc:0:0/1:1000:$((64 * mib)) free:0:0/1:1000:$((64 * mib)) \
    done:0:0/1:1000:$((64 * mib)) segment:0:0:9000000:$((32 * mib)) alloc:0:0:9000000:$((32 * mib)) \
    free:0:0:9000000:$((32 * mib)) done:0:0:9000000:$((32 * mib)) release:0:0:9000000:$((32 * mib)) \
    segment:0:0:9000000:$((96 * mib)) alloc:0:0:9000000:$((96 * mib))
replay
json "rows[0]['peak_reserved'] == 160 * $mib"
expect 0 check --reproduce "$scratch/made.weirtrace"
make segment:0:0/1:1000:$((64 * mib)) alloc:0:0/1:1000:$((64 * mib)) segment:0:0/2:20000000:$((64 * mib)) \
    alloc:0:0/2:20000000:$((64 * mib)) free:0:0/1:1000:$((64 * mib)) done:0:0/1:1000:$((64 * mib)) \
    free:0:0/2:20000000:$((64 * mib)) done:0:0/2:20000000:$((64 * mib)) release:0:0/1:1000:$((64 * mib)) \
    release:0:0/2:20000000:$((64 * mib)) alloc:0:0:9000000:512 segment:0:0:9000000:$((96 * mib)) \
    alloc:0:0:9000000:$((96 * mib))
replay
json "all(row['peak_reserved'] == 128 * $mib for row in rows)"

# Of the models, those that know such pools give back what that pool has, and nothing else.
make segment:0:0/1:1000:$((20 * mib)) alloc:0:0/1:1000:$((18 * mib)) free:0:0/1:1000:$((18 * mib)) \
    done:0:0/1:1000:$((18 * mib)) segment:0:0:9000000:$((40 * mib)) alloc:0:0:9000000:$((38 * mib)) \
    free:0:0:9000000:$((38 * mib)) done:0:0:9000000:$((38 * mib)) release:0:0/1:1000:$((20 * mib)) \
    segment:0:0/2:20000000:$((40 * mib)) alloc:0:0/2:20000000:$((38 * mib))
expect 0 replay --policy torch-expandable,gmlake --json - "$scratch/made.weirtrace"
json "[row['peak_reserved'] // $mib for row in rows] == [80, 76]"

# A model waits for each use once, whether it ended before the wait or at it, and asks for none that ended.
make alloc:0:0:1000:$((20 * mib)) free:0:0:1000:$((20 * mib)) alloc:0:0:9000000:$((20 * mib)) done:0:0:1000:$((20 * mib)) \
    free:0:0:9000000:$((20 * mib)) alloc:0:0:20000000:$((40 * mib)) done:0:0:9000000:$((20 * mib)) alloc:0:0:30000000:512
expect 0 replay --policy torch-expandable --device-memory 42MiB --json - "$scratch/made.weirtrace"
json "(rows[0]['peak_reserved'], rows[0]['oom']) == (42 * $mib, 0)"
# Three ranges, two events, two queries, three calls for each of four pages, four for the creates that failed, three for the
# page that went, one for the wait.
json 'rows[0]["driver_calls"] == 3 + 2 + 2 + 4 * 3 + 4 + 3 + 1'

# A job that runs again makes its pools again: memory of the last run's pools is gone by then.
make segment:0:0:9000000:$((96 * mib)) alloc:0:0:9000000:$((96 * mib)) free:0:0:9000000:$((96 * mib)) \
    done:0:0:9000000:$((96 * mib)) release:0:0:9000000:$((96 * mib)) \
    segment:0:0/1:1000:$((64 * mib)) alloc:0:0/1:1000:$((64 * mib))
replay
json "all(row['peak_reserved'] == row['peak_reserved_warm'] == 96 * $mib for row in rows)"

# A block that is freed at once waits for no stream, even if another device goes on before its free has completed.
make alloc:0:0:1000:4096 alloc:1:0:1000:8192 free:0:0:1000:4096 alloc:1:0:9000:512 done:0:0:1000:4096
expect 0 view --policy recorded,torch,weir --json - -o "$scratch/made.svg" "$scratch/made.weirtrace"
json 'all(row["peak_active"] == row["peak_requested"] == 4096 + 8192 for row in rows)'

# A use that ended is over before what another device does next.
make alloc:0:0:1000:4096 alloc:1:0:1000:8192 free:0:0:1000:4096 alloc:1:0:2000:512 alloc:0:0:9000:512 done:0:0:1000:4096 \
    alloc:1:0:9000:8192 alloc:0:0:20000:512
expect 0 view --policy recorded,torch --json - -o "$scratch/made.svg" "$scratch/made.weirtrace"
json 'all(row["peak_active"] == row["peak_requested"] == 2 * 8192 + 3 * 512 for row in rows)'

# What the trace does not free itself takes no later free's place: streams keep their names.
make alloc:0:0:1000:4096 alloc:0:0:1000:4096 alloc:0:7f00:2000:512 free:0:7f00:2000:512 done:0:7f00:2000:512
expect 0 view --policy recorded,torch -o "$scratch/made.html" "$scratch/made.weirtrace"
[ "$(grep -o '"lanes":\[[^]]*"stream":"0x7f00"' "$scratch/made.html" | wc -l)" = 2 ] || die "lanes differ"

# Blocks from before the first event.
make free:0:0:5000:4096 done:0:0:5000:4096 alloc:0:0:5000:4096 done:0:0:7000:512
replay
contains "$err" "made: 2 residents"
json 'all(row["residents"] == 2 and row["operations"] == 2 for row in rows)'
# What was asked for before the first event is no operation, in pictures neither: each place of the axis is one moment.
expect 0 view --policy recorded,torch,weir --json - -o "$scratch/made.svg" "$scratch/made.weirtrace"
json 'len({(row["operations"], row["blocks"], row["peak_requested"], row["peak_active"]) for row in rows}) == 1'
json 'rows[0]["operations"] == 2 and rows[0]["peak_active"] == 4096 + 512'
expect 1 check --reproduce "$scratch/made.weirtrace"
contains "$err" "does not begin with the program"

# What they cost is no part of the recorded time, of a model neither.
make free:0:0:5000:$((64 * mib)) done:0:0:5000:$((64 * mib)) alloc:0:0:5000:$((64 * mib))
expect 0 replay --policy torch,weir,cupy --repeat 1 --json - "$scratch/made.weirtrace"
json 'all((row["residents"], row["driver_calls"], row["driver_time_ns"]) == (1, 0, 0) for row in rows)'

# Nonsense is counted and survived.
make alloc:0:0:1000:512 alloc:0:0:1000:512 free:0:0:1000:512 done:0:0:1000:512 free:0:0:1000:512 done:0:0:1000:512 \
    alloc:0:0:1000:0 free:0:0:1000:0 alloc:0:0:1000:512
replay
contains "$err" "made: 4 anomalies"
json 'all(row["anomalies"] == 4 and row["oom"] == 0 for row in rows)'

# Nothing at all, and nothing that can be compared.
make
replay
json 'all(row["operations"] == 0 and row["fragmentation"] is None and row["ns_per_op_warm"] is None for row in rows)'
make alloc:0:0:1000:512
expect 1 check --reproduce "$scratch/made.weirtrace"
contains "$err" "it has no segment events"
make map:0:0:1000:$((2 * mib)) alloc:0:0:1000:512
expect 1 check --reproduce "$scratch/made.weirtrace"
contains "$err" "its segments grow by mapping"

# A setting that a snapshot has only in the text of its configuration.
python3 - "$scratch/set.pickle" <<'END'
import pickle, sys
event = {"action": "alloc", "addr": 4096, "size": 3 << 20, "stream": 0, "time_us": 1}
settings = {"PYTORCH_CUDA_ALLOC_CONF": "garbage_collection_threshold:0.8, large_segment_size_mb: 64"}
pickle.dump({"device_traces": [[event]], "segments": [], "allocator_settings": settings}, open(sys.argv[1], "wb"))
END
expect 0 replay --policy torch --repeat 1 --json - "$scratch/set.pickle"
json "rows[0]['peak_reserved'] == 64 * $mib"

# A file name need not be text, JSON must be.
cp "$scratch/set.pickle" "$scratch/"$'caf\xe9 \xc3\xa9\xc3.pickle'
for command in "replay --policy torch --repeat 1" check; do
    # shellcheck disable=SC2086
    expect 0 $command --json - "$scratch/"$'caf\xe9 \xc3\xa9\xc3.pickle'
    json 'rows[0]["trace"] == "caf\ufffd \u00e9\ufffd"'
done

# A lifetime belongs to the class of as many digits: of ten operations to that from ten on, of nine to the one below.
others=()
for i in 1 2 3 4; do others+=("alloc:0:0:${i}0000:512" "free:0:0:${i}0000:512" "done:0:0:${i}0000:512"); done
make alloc:0:0:900000:1000 "${others[@]}" alloc:0:0:800000:2000 free:0:0:900000:1000 done:0:0:900000:1000 \
    alloc:0:0:700000:3000 "${others[@]}" free:0:0:700000:3000 done:0:0:700000:3000
expect 0 stat --json - "$scratch/made.weirtrace"
json '[(life["from"], life["count"]) for life in rows[0]["lifetimes"] if life["count"]][:2] == [(1, 9), (10, 1)]'

# What is given back between two operations goes before what is taken there, so a stream's peak is not of both.
make segment:0:0:1000:$((64 * mib)) alloc:0:0:1000:$((64 * mib)) free:0:0:1000:$((64 * mib)) done:0:0:1000:$((64 * mib)) \
    segment:0:0:9000000:$((64 * mib)) release:0:0:1000:$((64 * mib)) alloc:0:0:9000000:$((64 * mib))
expect 0 stat --json - "$scratch/made.weirtrace"
json "[s['peak_reserved'] for s in rows[0]['streams']] == [64 * $mib]"

# A block whose free was requested before the first event counts in lifetimes alone.
make done:0:0:9000000:$((10 * mib)) alloc:0:0:1000:$mib free:0:0:1000:$mib done:0:0:1000:$mib alloc:0:0:1000:$mib
expect 0 stat --json - "$scratch/made.weirtrace"
json "[(s['count'], s['peak_requested']) for s in rows[0]['sizes']] == [(2, $mib)]"
json "sum(life['count'] for life in rows[0]['lifetimes']) == 3"
json "rows[0]['peak_active'] == 10 * $mib"
