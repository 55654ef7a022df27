#!/usr/bin/env bash
# weir stat: peaks equal to those of a replay and of an independent count, stacks, and the text output.
# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "$0")/lib.sh"
need_traces

small=$DATA/pickles/snapshot-4.pickle
expect 0 stat "$small"
contains "$out" "snapshot-4: pytorch-snapshot, 10 events, 3 operations"
contains "$out" "LARGEST AT PEAK"
[[ $out != *contradict* ]] || die "events that contradict none: $out"
contains "$out" 'train.py:12:step\with é and a?line' # a newline in a name does not break the table
contains "$out" "OUT OF MEMORY"
contains "$out" "
DEVICE  POOL     STREAM      ALLOCATIONS     BYTES  PEAK REQUESTED  PEAK RESERVED
     0  0,7      0                     0       0 B             0 B            0 B
     0  default  0                     1    1000 B          1000 B       2.00 MiB
     0  0,7      0x55550000            1  4.88 KiB        4.88 KiB            0 B
     0  all      all                   2  5.86 KiB        5.86 KiB       2.00 MiB
     1  default  0                     0       0 B             0 B       2.00 MiB"
contains "$out" "1.00 TiB"

# Control characters in a name do not reach the terminal either: C0, DEL, C1, changes of direction, invalid UTF-8. A long
# name ends with a whole character.
python3 - "$scratch/hostile.weirtrace" <<'END'
import struct, sys
events = b"".join(struct.pack("<6Q2HII", time, 4096 << time, 1000 >> time, 0, 0, 0, 1, 0, 1, time + 1) for time in range(2))
frames = ["a\x1b[2Jb\x7fc\u009b31md\u202ee\u2066f\u00e9\u2028".encode() + b"\x9b\xc0\x80\xff", 150 * "\u00e9".encode()]
data = struct.pack("<8s2H3I2Q2I2Q", b"weirtrc\n", 1, 3, 64, 60, 0, 2, 0, 2, 2, 0, 0) + events
data += b"".join(struct.pack("<I", len(frame)) + frame for frame in frames) + struct.pack("<4I", 1, 0, 1, 1)
open(sys.argv[1], "wb").write(data)
END
expect 0 stat "$scratch/hostile.weirtrace"
contains "$out" $'a?[2Jb?c?31md?e?f\u00e9\u2028????'
python3 -c 'import sys
text = open(sys.argv[1], "rb").read().decode()
assert 98 < max(line.count("\u00e9") for line in text.splitlines()) < 101, text' "$scratch/out" || die "cut: $out"
expect 0 stat --json - "$scratch/hostile.weirtrace"
python3 -c 'import sys
text = open(sys.argv[1], "rb").read()
assert all(byte == 10 or 32 <= byte < 128 for byte in text), text' "$scratch/out" || die "raw: $out"
json '"\u202ee" in rows[0]["largest"][0]["frames"][0] or "\u202ee" in rows[0]["largest"][1]["frames"][0]'
printf '\x80\x04}X\x0d\x00\x00\x00device_traces]]}X\x06\x00\x00\x00actionX\x05\x00\x00\x00\x1b]0;xsaas.' >"$scratch/hostile.pickle"
expect 1 check "$scratch/hostile.pickle"
contains "$err" '"?]0;x" is unknown'

expect 0 stat --json - "$small"
json 'rows[0]["peaks"]["requested"]["requested"] == 6000 and rows[0]["peaks"]["requested"]["active"] == 8000'
json '[peak["ratio"] for peak in rows[0]["peaks"].values()] == [699.0507, 699.0507, 4194.304]' # of reserved to requested
json 'rows[0]["largest"][0]["frames"] == ["train.py:12:step\\with é and a\nline"] * 2'
json 'rows[0]["largest"][1]["frames"] == ["model.py:3:forward"]'
json '[s["pool"] for s in rows[0]["streams"] if s["stream"] == 0x55550000] == [[0, 7]]'
json 'rows[0]["ooms"] == [{"operation": 2, "time_ns": 2000, "bytes": 1 << 40, "device": 1, "device_free": 4096, "requested": 0, "active": 0, "reserved": 2097152, "segments": 1, "holes": 1, "in_holes": 2097152, "largest_hole": 2097152, "beside": {"address": 139706696204288, "pool": [0, 0], "stream": 0, "below": None, "above": None}, "holders": [], "caller": "model.py:3:forward", "frames": ["model.py:3:forward"]}]'

# An address that a private pool has at the end was in the default pool before, whether or not events name their pools.
python3 - "$scratch" <<'EOF'
import pickle, sys
at, mib = 0x7f0000000000, 1 << 20
rows = [("segment_alloc", 20, 0), ("alloc", 8, 0), ("free_requested", 8, 0), ("free_completed", 8, 0), ("segment_free", 20, 0),
        ("segment_alloc", 2, 1), ("alloc", 1, 1)]
blocks = [{"address": at, "size": mib, "requested_size": mib, "state": "active_allocated"}]
segment = {"address": at, "device": 0, "stream": 0, "total_size": 2 * mib, "segment_pool_id": (0, 1), "blocks": blocks}
for name in "named", "unnamed":
    events = [{"action": action, "addr": at, "size": size * mib, "stream": 0, "time_us": time} for time, (action, size, pool) in enumerate(rows)]
    for event, (_, _, pool) in zip(events, rows):
        if name == "named": event["pool_id"] = (0, pool)
    pickle.dump({"segments": [segment], "device_traces": [events]}, open(f"{sys.argv[1]}/{name}.pickle", "wb"))
EOF
for name in named unnamed; do
    expect 0 stat --json - "$scratch/$name.pickle"
    json 'sorted([s["pool"], s["peak_requested"] >> 20, s["peak_reserved"] >> 20] for s in rows[0]["streams"]) == [[[0, 0], 8, 20], [[0, 1], 1, 2]]'
done

# A failure has its own time, not that of the next operation; free memory that was not recorded does not show as 0.
python3 - "$scratch/failure.pickle" <<'EOF'
import pickle, sys
rows = [("alloc", 1), ("oom", 5), ("free_requested", 60), ("free_completed", 60)]
events = [{"action": action, "addr": 0, "size": 512, "stream": 0, "time_us": time * 1000000} for action, time in rows]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat "$scratch/failure.pickle"
contains "$out" "        512 B          2  4.000 s       0            -      512 B   512 B         -      -         -             -"
expect 0 stat --json - "$scratch/failure.pickle"
json 'rows[0]["ooms"][0]["time_ns"] == 4 * 10**9 and rows[0]["ooms"][0]["device_free"] is None'
json '[rows[0]["ooms"][0][name] for name in ("requested", "reserved", "holes", "beside")] == [512, None, None, None]'

# Each device has its own peak and its own list.
python3 - "$scratch/devices.pickle" <<'EOF'
import pickle, sys
def event(time, action, addr, size):
    return {"action": action, "addr": addr << 20, "size": size << 20, "stream": 0, "time_us": time}
first = [event(1, "alloc", 0, 10), event(2, "alloc", 10, 60), event(3, "free_requested", 10, 60), event(4, "free_completed", 10, 60)]
second = [event(1, "alloc", 100, 70), event(2, "free_requested", 100, 70), event(3, "free_completed", 100, 70)]
second += [event(5, "alloc", 0, 4), event(6, "alloc", 10, 50), event(7, "alloc", 60, 20)]
pickle.dump({"segments": [], "device_traces": [first, second]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat "$scratch/devices.pickle"
contains "$out" "
LARGEST AT PEAK  DEVICE  POOL     STREAM    ADDRESS  SINCE  UNTIL
       60.0 MiB       0  default  0        0xa00000      3      5
       10.0 MiB       0  default  0               0      1    end
       50.0 MiB       1  default  0        0xa00000      7    end
       20.0 MiB       1  default  0       0x3c00000      8    end
       4.00 MiB       1  default  0               0      6    end"
expect 0 stat --json - -n 1 "$scratch/devices.pickle"
json '[(b["device"], b["bytes"] >> 20) for b in rows[0]["largest"]] == [(0, 60), (1, 50)]'

# Requests that failed may be of any size: their sum stops at the most that there is, of which JSON has half.
printf 'Thread,Time,Action,Pointer,Size,Stream\n1,1.0,allocate,0x10,512,0\n1,1.1,allocate failure,0x0,9223372036854775808,0\n%s\n' \
    "1,1.2,allocate failure,0x0,9223372036854775808,0" >"$scratch/absurd.csv"
expect 0 stat --json - "$scratch/absurd.csv"
json 'rows[0]["kinds"]["oom"] == {"count": 2, "bytes": 2**63 - 1}'

# The first ten failures and the last show the state of memory, who asked, and which blocks are beside the largest hole.
python3 - "$scratch/holes.pickle" <<'EOF'
import pickle, sys
def event(action, addr, size, name, **more):
    return dict({"action": action, "addr": addr << 20, "size": size << 20, "stream": 0, "time_us": 1,
                 "frames": [{"filename": name + ".py", "line": 1, "name": "f"}]}, **more)
events = [event("segment_alloc", 64, 64, "first"), event("segment_alloc", 256, 32, "spare"), event("alloc", 64, 8, "low")]
events += [event("alloc", 96, 8, "high"), event("segment_free", 256, 32, "spare")]
events += [event("oom", 0, 60, "wide", device_free=1 << 20) for _ in range(12)]
events += [event("free_requested", 64, 8, "low"), event("free_completed", 64, 8, "low")]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat "$scratch/holes.pickle"
contains "$out" "1.00 MiB   16.0 MiB  16.0 MiB  64.0 MiB      2  48.0 MiB      24.0 MiB  wide.py:1:f"
contains "$out" "       1 more  "
contains "$out" "           8.00 MiB                 3  below       0  default  0       0x4000000      1      3  low.py:1:f"
contains "$out" "           8.00 MiB                 3  above       0  default  0       0x6000000      2    end  high.py:1:f"
expect 0 stat --json - "$scratch/holes.pickle"
json '[rows[0]["ooms"][0][name] >> 20 for name in ("requested", "active", "reserved", "in_holes")] == [16, 16, 64, 48]'
json '[rows[0]["ooms"][0]["beside"][side]["caller"] for side in ("below", "above")] == ["low.py:1:f", "high.py:1:f"]'
json '[oom["holes"] for oom in rows[0]["ooms"]] == 10 * [2] + [None, 2] and rows[0]["ooms"][11]["beside"]["below"]["address"] == 64 << 20'

# Who held the memory of the device at the last failure: by pool, stream and caller, with what other streams still used. Not
# what another device held, what was gone by then or came later, or the peak.
python3 - "$scratch/holders.pickle" <<'EOF'
import pickle, sys
def event(time, action, addr, size, line, stream=0, pool=0):
    frames = [{"filename": "job.py", "line": line, "name": "f"}] if line else []
    return {"action": action, "addr": addr << 20, "size": size << 20, "stream": stream, "time_us": time, "pool_id": (0, pool), "frames": frames}
other = [event(1, "alloc", 100, 90, 9), event(2, "oom", 0, 60, 9)]
events = [event(10, "alloc", 0, 50, 1), event(11, "alloc", 100, 3, 2), event(12, "alloc", 110, 4, 2), event(13, "alloc", 120, 6, 2, stream=7)]
events += [event(14, "alloc", 130, 4, 2, pool=3), event(14, "alloc", 134, 1, 2, pool=3), event(15, "free_requested", 0, 50, 1), event(16, "free_completed", 0, 50, 1)]
events += [event(17, "alloc", 140, 1, 0), event(18, "free_requested", 110, 4, 2), event(19, "oom", 0, 99, 4), event(20, "free_completed", 110, 4, 2)]
events += [event(21, "alloc", 150, 70, 5)]
pickle.dump({"segments": [], "device_traces": [other, events]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat "$scratch/holders.pickle"
contains "$out" "
ACTIVE AT LAST FAILURE  REQUESTED  BLOCKS   LARGEST  DEVICE  POOL     STREAM  WHERE
              7.00 MiB   3.00 MiB       2  4.00 MiB       1  default  0       job.py:2:f
              6.00 MiB   6.00 MiB       1  6.00 MiB       1  default  0x7     job.py:2:f
              5.00 MiB   5.00 MiB       2  4.00 MiB       1  0,3      0       job.py:2:f
              1.00 MiB   1.00 MiB       1  1.00 MiB       1  default  0       "
contains "$out" "
     99.0 MiB         11  0.000 s       1            -   15.0 MiB  19.0 MiB         -      -         -             -  job.py:4:f
"
expect 0 stat -n 1 "$scratch/holders.pickle"
contains "$out" "and 3 more, with 12.0 MiB"
expect 0 stat --json - "$scratch/holders.pickle"
json '[[h["active"] >> 20, h["requested"] >> 20, h["blocks"], h["pool"], h["stream"], h["caller"]] for h in rows[0]["ooms"][1]["holders"]] == [
    [7, 3, 2, [0, 0], 0, "job.py:2:f"], [6, 6, 1, [0, 0], 7, "job.py:2:f"], [5, 5, 2, [0, 3], 0, "job.py:2:f"], [1, 1, 1, [0, 0], 0, None]]'
json 'rows[0]["ooms"][0]["holders"] is None and rows[0]["ooms"][1]["holders"][0]["largest"]["address"] == 110 << 20'

# Who held the memory of each device when most of it was requested, whether or not anything failed.
expect 0 stat "$scratch/holders.pickle"
contains "$out" "
ACTIVE AT PEAK  REQUESTED  BLOCKS   LARGEST  DEVICE  POOL     STREAM  WHERE
      90.0 MiB   90.0 MiB       1  90.0 MiB       0  default  0       job.py:9:f

ACTIVE AT PEAK  REQUESTED  BLOCKS   LARGEST  DEVICE  POOL     STREAM  WHERE
      70.0 MiB   70.0 MiB       1  70.0 MiB       1  default  0       job.py:5:f
      6.00 MiB   6.00 MiB       1  6.00 MiB       1  default  0x7     job.py:2:f
      5.00 MiB   5.00 MiB       2  4.00 MiB       1  0,3      0       job.py:2:f
      3.00 MiB   3.00 MiB       1  3.00 MiB       1  default  0       job.py:2:f
      1.00 MiB   1.00 MiB       1  1.00 MiB       1  default  0       "
expect 0 stat --json - "$scratch/holders.pickle"
json '[sum(h["requested"] for h in d["holders"]) == d["peak_requested"] for d in rows[0]["devices"]] == [True, True]'
json '[h["caller"] for h in rows[0]["devices"][1]["holders"]] == ["job.py:5:f"] + 3 * ["job.py:2:f"] + [None]'
expect 0 stat --json - "$scratch/holders.pickle"
json '[(b["device"], b["pool"], b["stream"]) for b in rows[0]["largest"]][:4] == [
    (0, [0, 0], 0), (1, [0, 0], 0), (1, [0, 0], 7), (1, [0, 3], 0)]'
expect 0 stat -n 1 --json - "$scratch/holders.pickle"
json '[len(of["holders"]) for of in rows[0]["devices"] + rows[0]["ooms"][1:]] == [1, 1, 1]'
expect 0 stat -n 0 "$scratch/holders.pickle"
case $out in *"ACTIVE AT"*) die "holders are listed: $out" ;; esac

# They add up to what the failure tells, and a plain count in Python agrees for a recording of many failures.
trace=$DATA/short/emptied.pickle.gz
expect 0 stat -n 10000 --json - "$trace"
python3 - "$trace" "$scratch/out" <<'EOF'
import collections, gzip, json, pickle, sys
events = pickle.load(gzip.open(sys.argv[1]))["device_traces"][0]
failures = json.load(open(sys.argv[2]))[0]["ooms"]
last = max(i for i, e in enumerate(events) if e["action"] == "oom")
held = {}
for e in events[:last]:
    if e["action"] == "alloc":
        held[e["addr"]] = e
    elif e["action"] == "free_completed":
        del held[e["addr"]]
groups = collections.Counter()
for e in held.values():
    groups[e["stream"], next("{filename}:{line}:{name}".format(**f) for f in e["frames"] if f["filename"].endswith(".py"))] += e["size"]
said = failures[-1]["holders"]
assert {(h["stream"], h["caller"]): h["active"] for h in said} == groups, (said, groups)
assert sum(h["active"] for h in said) == failures[-1]["active"] == sum(e["size"] for e in held.values())
assert sum(h["blocks"] for h in said) == len(held)
assert [i for i, f in enumerate(failures) if f["active"] is None] == list(range(10, len(failures) - 1))
EOF

# Mapped pieces side by side are one segment, but not those of two devices.
python3 - "$scratch/beside.pickle" <<'EOF'
import pickle, sys
MIB = 1 << 20
def mapped(*pieces):
    return [{"action": "segment_map", "addr": (2048 + at) * MIB, "size": 2 * MIB, "stream": 0, "time_us": 1} for at in pieces]
events = [mapped(0, 2), mapped(4) + [{"action": "alloc", "addr": 2052 * MIB, "size": MIB, "stream": 0, "time_us": 2}]]
pickle.dump({"segments": [], "device_traces": events}, open(sys.argv[1], "wb"))
EOF
expect 0 stat --json - "$scratch/beside.pickle"
json '[rows[0]["peaks"]["requested"][name] for name in ("segments", "holes", "in_holes")] == [2, 2, 5 << 20]'

# What PyTorch did not split off a block is no hole, where the snapshot lists the block.
python3 - "$scratch/unsplit.pickle" <<'EOF'
import pickle, sys
MIB = 1 << 20
rows = [("segment_alloc", 1 << 32, 84), ("alloc", 1 << 32, 66), ("oom", 0, 16)]
events = [{"action": action, "addr": at, "device_free": MIB, "size": size * MIB, "stream": 0, "time_us": 1} for action, at, size in rows]
block = {"address": 1 << 32, "size": 84 * MIB, "requested_size": 66 * MIB, "state": "active_allocated", "frames": []}
segment = {"device": 0, "address": 1 << 32, "total_size": 84 * MIB, "stream": 0, "segment_type": "large", "blocks": [block]}
pickle.dump({"segments": [segment], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat --json - "$scratch/unsplit.pickle"
json '[rows[0]["ooms"][0][name] for name in ("holes", "in_holes", "active", "reserved")] == [0, 0, 66 << 20, 84 << 20]'
json 'rows[0]["peaks"]["requested"]["holes"] == 0'

# In PyTorch's stacks with compiled code (stacks="all", the default) the program's line is named, not the recorder's.
python3 - "$scratch/compiled.pickle" <<'EOF'
import pickle, sys
names = ["torch::unwind::unwind()", "torch::CapturedTraceback::gather(bool, bool, bool)", "at::native::empty_cuda(...)"]
frames = [{"filename": "??", "line": 0, "name": name} for name in names] + [{"filename": "model.py", "line": 3, "name": "loss"}]
events = [{"action": "alloc", "addr": 1 << 20, "size": 512, "stream": 0, "time_us": 1, "frames": frames}]
events.append({"action": "oom", "addr": 0, "device_free": 1, "size": 4096, "stream": 0, "time_us": 2, "frames": frames})
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat "$scratch/compiled.pickle"
contains "$out" "  model.py:3:loss"
case $out in *unwind*) die "the recorder is named: $out" ;; esac
expect 0 stat --json - "$scratch/compiled.pickle"
json '[row["caller"] for row in rows[0]["largest"] + rows[0]["ooms"]] == ["model.py:3:loss"] * 2'
json 'rows[0]["largest"][0]["frames"][0] == "torch::unwind::unwind()"'

# A long path shows its end, with the line; a long function name its beginning.
python3 - "$scratch/long.pickle" <<'EOF'
import pickle, sys
frames = [{"filename": "/home/" + 400 * "x" + "/nn/linear.py", "line": 125, "name": "forward" + 400 * "y"}]
events = [{"action": "alloc", "addr": 1 << 20, "size": 512, "stream": 0, "time_us": 1, "frames": frames}]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat "$scratch/long.pickle"
contains "$out" "  ...xxx"
contains "$out" "xxx/nn/linear.py:125:forwardyyy"

# A plain count in Python agrees for a recorded job.
trace=$DATA/traces/convnext_prefetch.pickle.gz
expect 0 stat --largest 3 --json - "$trace"
json 'len(rows) == 1 and len(rows[0]["largest"]) == 3'
python3 - "$trace" "$scratch/out" <<'EOF'
import collections, gzip, json, pickle, sys
events = pickle.load(gzip.open(sys.argv[1]))["device_traces"][0]
said = json.load(open(sys.argv[2]))[0]
kinds = collections.Counter(e["action"] for e in events)
assert {k: v["count"] for k, v in said["kinds"].items() if v["count"]} == kinds
sizes, lanes = collections.Counter(), collections.Counter()
live, reserved, peak, peak_reserved = 0, 0, 0, 0
for e in events:
    if e["action"] == "alloc":
        live += e["size"]
        sizes[1 << max(e["size"].bit_length() - 1, 0)] += e["size"]
        lanes[e["stream"]] += e["size"]
    elif e["action"] == "free_requested":
        live -= e["size"]
    elif e["action"] == "segment_alloc":
        reserved += e["size"]
    peak, peak_reserved = max(peak, live), max(peak_reserved, reserved)
assert said["peak_requested"] == peak, (said["peak_requested"], peak)
assert said["peak_reserved"] == peak_reserved
assert {s["from"] or 1: s["bytes"] for s in said["sizes"]} == sizes
assert {s["stream"]: s["bytes"] for s in said["streams"]} == lanes
assert sum(s["count"] for s in said["lifetimes"]) == kinds["alloc"]
EOF
"$WEIR" replay --policy torch --repeat 1 --json "$scratch/replay" "$trace" >"$scratch/table"
python3 - "$scratch/out" "$scratch/replay" <<'EOF'
import json, sys
said, replayed = (json.load(open(path))[0] for path in sys.argv[1:])
assert said["operations"] == replayed["operations"]
assert said["peak_requested"] == replayed["peak_requested"]
assert said["peak_reserved"] == replayed["peak_reserved"]
EOF

# Kinds that only weir's own traces have.
expect 0 convert "$small" -o "$scratch/small.weirtrace"
python3 - "$scratch/small.weirtrace" <<'EOF'
import struct, sys
data = bytearray(open(sys.argv[1], "rb").read())
event_bytes, events = struct.unpack_from("<I4xQ", data, 16)
struct.pack_into("<Q", data, 24, events + 2)
end = 64 + event_bytes * events
time = struct.unpack_from("<Q", data, end - event_bytes)[0]
label = struct.pack("<Q40sHhI", time, b"a label of more than sixteen bytes", 11, 0, 0)
decision = struct.pack("<QQQQQQHhI", time, 1, 600, 0, 0, 0, 12, 0, 0)
data[end:end] = label.ljust(event_bytes, b"\0") + decision.ljust(event_bytes, b"\0")
open(sys.argv[1], "wb").write(data)
EOF
expect 0 stat --json - "$scratch/small.weirtrace"
json 'rows[0]["kinds"]["label"] == {"count": 1, "bytes": 0} and rows[0]["kinds"]["decision"] == {"count": 1, "bytes": 600}'
json 'sum(kind["count"] for kind in rows[0]["kinds"].values()) == rows[0]["events"]'

printf 'Thread,Time,Action,Pointer,Size,Stream\n0,00:00:00.0,allocate,0x10,100,0\n' >"$scratch/log.csv"
expect 0 stat "$scratch/log.csv" "$small"
contains "$out" "no segments are recorded"
contains "$out" "
     0  default  0                 1  100 B           100 B              -"
contains "$out" "snapshot-4: "
expect 0 stat --json - "$scratch/log.csv"
json 'rows[0]["peak_requested"] == 100 and rows[0]["peak_reserved"] is None and rows[0]["peaks"]["reserved"] is None'
json 'rows[0]["peaks"]["requested"]["ratio"] is None and rows[0]["devices"][0]["peak_reserved"] is None'
expect 1 stat "$scratch/nothing" "$small"
contains "$err" "$scratch/nothing"
contains "$out" "snapshot-4: "

# What grows by mapping has one stream: neighbours of two streams are two segments, with a hole each.
python3 - "$scratch/beside.pickle" <<'EOF'
import pickle, sys
MIB, at = 1 << 20, 0x7F0000000000
def event(action, address, mib, stream, time):
    return {"action": action, "addr": address, "size": mib * MIB, "stream": stream, "time_us": time}
events = [event("segment_map", at, 20, 0, 1), event("alloc", at, 1, 0, 2),
          event("segment_map", at + 20 * MIB, 20, 7, 3), event("alloc", at + 39 * MIB, 1, 7, 4),
          event("segment_map", at + 40 * MIB, 20, 7, 5)]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat --json - "$scratch/beside.pickle"
json '[(p["segments"], p["holes"], p["largest_hole"] >> 20) for p in rows[0]["peaks"].values()][-1] == (2, 3, 20)'

# Times are from the first event on, and lifetimes in operations; what the trace does not tell is no number.
events()
{
    python3 - "$scratch/events.pickle" "$@" <<'EOF'
import pickle, sys
kinds = {"alloc": ["alloc"], "free": ["free_requested", "free_completed"], "done": ["free_completed"], "oom": ["oom"],
         "take": ["segment_alloc"], "give": ["segment_free"]}
events = []
for text in sys.argv[2:]:
    time, kind, address, size, stream = text.split(":")
    events += [{"action": action, "addr": int(address), "device_free": 0, "size": int(size), "stream": int(stream),
                "time_us": int(time) * 1000000} for action in kinds[kind]]
pickle.dump({"segments": [], "device_traces": [events]}, open(sys.argv[1], "wb"))
EOF
}
events 101:alloc:4096:512:0 103:alloc:8192:1024:7 105:oom:0:4096:0 106:free:4096:512:0 107:oom:0:4096:0
expect 0 stat "$scratch/events.pickle"
contains "$out" "3 operations in 6.000 s"
contains "$out" "requested            2  2.000 s"
contains "$out" "     4.00 KiB          3  4.000 s       0            -  "
contains "$out" "     0  all      all               2  1.50 KiB"
expect 0 stat --json - "$scratch/events.pickle"
json '(rows[0]["duration_ns"], rows[0]["peaks"]["requested"]["time_ns"], rows[0]["ooms"][0]["time_ns"]) == (6 * 10**9, 2 * 10**9, 4 * 10**9)'
json 'rows[0]["ooms"][0]["device_free"] is None and [(l["from"], l["count"]) for l in rows[0]["lifetimes"]] == [(1, 1), (None, 1)]'
events 1:alloc:512:512:0 1:alloc:{1..9}024:512:0 1:free:512:512:0
expect 0 stat --json - "$scratch/events.pickle"
json '[(l["from"], l["count"]) for l in rows[0]["lifetimes"]] == [(10, 1), (None, 9)]'

# Sums and peaks by kind, size and lifetime are each its own; without failures there is no word of them.
events 1:alloc:0:512:0 1:alloc:512:600:0 1:take:4096:2097152:0 1:free:0:512:0 1:alloc:4096:700:0 1:free:512:600:0
expect 0 stat "$scratch/events.pickle"
contains "$out" "
EVENT           COUNT     BYTES
alloc               3  1.77 KiB
free_requested      2  1.09 KiB
free_completed      2  1.09 KiB
segment_alloc       1  2.00 MiB
"
contains "$out" "
SIZE FROM  ALLOCATIONS     BYTES  PEAK REQUESTED
    512 B            3  1.77 KiB        1.27 KiB

  LIVES FROM  ALLOCATIONS     BYTES
1 operations            2  1.09 KiB
  to the end            1     700 B
"
case $out in *"OUT OF MEMORY"* | *"BESIDE"*) die "failures are listed: $out" ;; esac
contains "$out" "5 operations in 0.000 s"
contains "$out" "
reserved             3  0.000 s      600 B     600 B  2.00 MiB  3495.253         1      1  2.00 MiB      2.00 MiB
"
case $out in *" all "*) die "one stream has a sum: $out" ;; esac
expect 0 stat --json - "$scratch/events.pickle"
json '[(row["bytes"], row["until"]) for row in rows[0]["largest"]] == [(700, None), (600, 5)]'
json '{kind: row["bytes"] for kind, row in rows[0]["kinds"].items() if row["count"]}["free_completed"] == 1112'
json '[(row["from"], row["bytes"]) for row in rows[0]["lifetimes"]] == [(1, 1112), (None, 700)]'

# Sizes below 2 bytes begin at 0.
events 1:alloc:0:0:0 1:alloc:512:1:0 1:alloc:1024:2:0
expect 0 stat "$scratch/events.pickle"
contains "$out" "
SIZE FROM  ALLOCATIONS  BYTES  PEAK REQUESTED
      0 B            2    1 B             1 B
      2 B            1    2 B             2 B
"
expect 0 stat --json - "$scratch/events.pickle"
json '[(row["from"], row["count"]) for row in rows[0]["sizes"]] == [(0, 2), (2, 1)]'

# Where nothing was held when most was requested, there is no ratio.
events 1:alloc:0:512:0 1:free:0:512:0 1:take:4096:2097152:0 1:alloc:4096:256:0
expect 0 stat --json - "$scratch/events.pickle"
json '[(peak["reserved"], peak["ratio"]) for peak in rows[0]["peaks"].values()] == 2 * [(0, None)] + [(2097152, 8192)]'

# A block whose free had been requested before the first event counts in lifetimes alone.
events 1:done:512:512:0 1:alloc:1024:512:0 1:free:1024:512:0
expect 0 stat "$scratch/events.pickle"
contains "$out" "events: 1 blocks are from before the first event"
expect 0 stat --json - "$scratch/events.pickle"
json '[sum(row["count"] for row in rows[0][name]) for name in ("sizes", "streams", "lifetimes")] == [1, 1, 2] and rows[0]["residents"] == 1'

# Peaks are those after operations: what is taken once the same was given back adds nothing, nor what goes before the next one.
events 1:take:0:40000000:0 1:alloc:0:512:0 1:free:0:512:0 1:give:0:40000000:0 1:take:50000000:40000000:0 \
    1:alloc:50000000:512:0 1:take:100000000:50000000:0 1:give:100000000:50000000:0 1:free:50000000:512:0
expect 0 stat --json - "$scratch/events.pickle"
json '[rows[0][of][0]["peak_reserved"] for of in ("devices", "streams")] == [40000000] * 2 == [rows[0]["peak_reserved"]] * 2'

# A hole has 512 bytes or more. Memory that is given back twice contradicts itself.
events 1:take:0:4096:0 1:alloc:0:512:0 1:alloc:1024:512:0 1:alloc:2047:2049:0 1:free:0:512:0 1:give:8192:4096:0 1:give:8192:4096:0
expect 0 stat "$scratch/events.pickle"
contains "$out" "events: 1 events contradict earlier ones; 'weir check' lists them"
expect 0 stat --json - "$scratch/events.pickle"
json 'rows[0]["malformed"] == 1 and [rows[0]["peaks"]["requested"][name] for name in ("segments", "holes", "in_holes")] == [2, 1 + 1, 512 + 4096]'

# A list of segments at the end tells of reserved bytes, too, without events of segments.
python3 - "$scratch/listed.pickle" <<'EOF'
import pickle, sys
segment = {"device": 0, "address": 1 << 32, "total_size": 2 << 20, "stream": 0, "segment_type": "small", "blocks": []}
event = {"action": "alloc", "addr": 1 << 32, "size": 512, "stream": 0, "time_us": 1}
pickle.dump({"segments": [segment], "device_traces": [[event]]}, open(sys.argv[1], "wb"))
EOF
expect 0 stat --json - "$scratch/listed.pickle"
json 'rows[0]["peak_reserved"] == 2 << 20'
