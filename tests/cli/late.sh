#!/usr/bin/env bash
# weir check --reproduce on recordings that do not begin with the program: the last part of recorded ones.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"

# late NAME FILE PART: the last part of the events of each device, as a recorder's full ring keeps them.
late()
{
    python3 - "$2" "$scratch/$1.pickle" "$3" <<'END'
import gzip, pickle, sys
path, out, part = sys.argv[1:]
snapshot = pickle.load(gzip.open(path))
snapshot["device_traces"] = [trace[len(trace) - int(len(trace) * float(part)):] for trace in snapshot["device_traces"]]
pickle.dump(snapshot, open(out, "wb"))
END
}

# repeated NAME EVENTS
repeated()
{
    expect 0 check --reproduce "$scratch/$1.pickle"
    contains "$out" "$1: reproduced: $2 of $2 segment events"
}

# From where its blocks lay the rules repeat what followed, also where memory was short.
late resnet50_amp "$DATA/traces/resnet50_amp.pickle.gz" 0.9
repeated resnet50_amp 1
late graphsage "$DATA/traces/graphsage.pickle.gz" 0.5
repeated graphsage 2
late plain "$DATA/short/plain.pickle.gz" 0.5
repeated plain 582
late wide "$DATA/short/plain.pickle.gz" 0.952
repeated wide 1120
late emptied "$DATA/short/emptied.pickle.gz" 0.03
repeated emptied 20
late split "$DATA/short/split.pickle.gz" 0.5
repeated split 1177

# Nothing tells how much a block has that is freed before anything is allocated behind it.
late guessed "$DATA/short/ballast.pickle.gz" 0.29
expect 1 check --reproduce "$scratch/guessed.pickle"
contains "$out" "blocks from before the first event it is unknown whether they have up to 1 MiB more than was asked for"

# A device may have held more than those of the host back end have.
python3 - "$scratch/ample.pickle" <<'END'
import gzip, pickle, sys
gib = 1 << 30
places = [0x100000000000 + i * gib for i in range(100)]
segments = [{"device": 0, "address": at, "total_size": gib, "stream": 0, "segment_type": "large",
             "blocks": [{"address": at, "size": gib, "requested_size": gib, "state": "active_allocated"}]} for at in places]
trace = [{"action": action, "addr": at, "size": gib, "stream": 0} for at in places for action in ("segment_alloc", "alloc")]
pickle.dump({"segments": segments, "device_traces": [trace]}, gzip.open(sys.argv[1], "wb"))
END
expect 0 check --reproduce "$scratch/ample.pickle"
contains "$out" "reproduced: 100 of 100 segment events"
WEIR_HOST_MEMORY=50GiB expect 1 check --reproduce "$scratch/ample.pickle"
contains "$out" "reproduced: 50 of 100 segment events"
contains "$out" "  recorded     52: SEGMENT_ALLOC"
contains "$out" "  replayed     50: nothing more"
expect 1 replay --policy torch --repeat 1 --reproduce --device-memory 50GiB "$scratch/ample.pickle"
contains "$out" "reproduced: 50 of 100 segment events"
late ample_late "$scratch/ample.pickle" 0.1
repeated ample_late 10
WEIR_HOST_MEMORY=50GiB expect 1 check --reproduce "$scratch/ample_late.pickle"
contains "$err" "nothing to compare: the device has less memory than the segments take that it must have begun with"

# Twice as much as it held is more than a device of the host back end can have.
python3 - "$scratch/vast.pickle" <<'END'
import pickle, sys
places = [i + 1 << 44 for i in range(10)]
trace = [{"action": action, "addr": at, "size": 1 << 40, "stream": 0} for at in places for action in ("segment_alloc", "alloc")]
pickle.dump({"segments": [], "device_traces": [trace]}, open(sys.argv[1], "wb"))
END
expect 0 check --reproduce "$scratch/vast.pickle"
contains "$out" "reproduced: 10 of 10 segment events"

# No segment was taken any more, and the replay takes none either.
late convnext_prefetch "$DATA/traces/convnext_prefetch.pickle.gz" 0.2
repeated convnext_prefetch 0

# What the recorded allocator held is said beside the policies' rows, which begin with an empty cache.
expect 0 replay --policy torch --repeat 1 "$scratch/graphsage.pickle"
contains "$err" "graphsage: 36 residents: blocks from before the first event, which are allocated first; the recorded \
allocator held up to 15.4 GiB"

# refuses NAME REASON
refuses()
{
    expect 1 check --reproduce "$scratch/$1.pickle"
    contains "$err" "$1: there is nothing to compare: it does not begin with the program, and $2"
}

late expandable "$DATA/short/expandable.pickle.gz" 0.5
expect 1 check --reproduce "$scratch/expandable.pickle"
contains "$err" "expandable: there is nothing to compare: its segments grow by mapping"

# change NAME STATEMENT: applied to a copy of the late recording of graphsage.
change()
{
    python3 - "$scratch/graphsage.pickle" "$scratch/$1.pickle" "$2" <<'END'
import pickle, sys
path, out, statement = sys.argv[1:]
snapshot = pickle.load(open(path, "rb"))
segments, settings = snapshot["segments"], snapshot["allocator_settings"]
exec(statement)
pickle.dump(snapshot, open(out, "wb"))
END
}

change unlisted 'segments.clear()'
refuses unlisted "blocks from before it overlap, or lie in no segment that it names"
change grown '[s.update(is_expandable=True) for s in segments]'
refuses grown "its segments grow by mapping (expandable_segments)"
change collected 'settings.update(garbage_collection_threshold=0.5)'
refuses collected "garbage_collection_threshold goes by when its free blocks were freed"
change moved '[s.update(address=s["address"] + 2**20) for s in segments]'
refuses moved "its segments have holes that PyTorch's rules do not leave"

# For a block of 3 MiB PyTorch takes a segment of 20 MiB.
python3 - "$scratch/unlike.pickle" <<'END'
import pickle, sys
at, bytes_ = 1 << 40, 3 << 20
events = [{"action": action, "addr": at, "size": bytes_, "stream": 0} for action in ("free_requested", "free_completed")]
segments = [{"address": at, "total_size": bytes_, "stream": 0, "blocks": [{"size": bytes_, "state": "inactive"}]}]
pickle.dump({"segments": segments, "device_traces": [events]}, open(sys.argv[1], "wb"))
END
expect 1 check --reproduce "$scratch/unlike.pickle"
contains "$err" "nothing to compare: by PyTorch's rules it cannot have begun with the segments that it must have had"

# What begins with the program and has no segment events was recorded without them.
late whole "$DATA/short/plain.pickle.gz" 1
python3 - "$scratch/whole.pickle" <<'END'
import pickle, sys
snapshot = pickle.load(open(sys.argv[1], "rb"))
snapshot["device_traces"] = [[e for e in trace if "segment" not in e["action"]] for trace in snapshot["device_traces"]]
pickle.dump(snapshot, open(sys.argv[1], "wb"))
END
expect 1 check --reproduce "$scratch/whole.pickle"
contains "$err" "whole: there is nothing to compare: it has no segment events"
