#!/usr/bin/env python3
"""Checks that a file is a memory snapshot as PyTorch 2.11 writes them: the same keys, types and sums, and opcodes that its
browser viewer knows: torch_snapshot.py [--frames PART] FILE; with the stacks of a program whose file's name has that part.
"""
import argparse
import pickle
import pickletools

SEGMENT = {"device": int, "address": int, "total_size": int, "allocated_size": int, "active_size": int,
           "requested_size": int, "stream": int, "segment_type": str, "segment_pool_id": tuple, "is_expandable": bool,
           "frames": list, "blocks": list}
BLOCK = {"address": int, "size": int, "requested_size": int, "state": str, "frames": list}
EVENT = {"action": str, "addr": int, "size": int, "stream": int, "time_us": int, "compile_context": str,
         "user_metadata": str, "frames": list, "pool_id": tuple}
FRAME = {"filename": str, "line": int, "name": str}
OOM = {k: t for k, t in EVENT.items() if k != "addr"} | {"device_free": int}
STATES = {"inactive", "active_allocated", "active_pending_free"}
ACTIONS = {"alloc", "free_requested", "free_completed", "segment_alloc", "segment_free", "segment_map", "segment_unmap",
           "snapshot", "oom"}
VIEWER = {"PROTO", "EMPTY_DICT", "EMPTY_LIST", "MARK", "SETITEMS", "APPENDS", "BINUNICODE", "BINPUT", "BINGET", "BININT",
          "BININT1", "BININT2", "LONG1", "TUPLE2", "NEWTRUE", "NEWFALSE", "BINFLOAT", "STOP", "LONG_BINPUT",
          "LONG_BINGET"}


def typed(value, types):
    assert set(value) == set(types), (set(value) ^ set(types), value)
    for key, kind in types.items():
        assert type(value[key]) is kind, (key, value[key])


def check_frames(holder, program):
    """Innermost first. Frames that only PyTorch's own allocator has are not required."""
    for frame in holder["frames"]:
        typed(frame, FRAME)
    assert not holder["frames"] or program and program in holder["frames"][0]["filename"], holder


def check_segment(segment):
    typed(segment, SEGMENT)
    assert segment["segment_type"] in ("large", "small")
    at = segment["address"]
    for block in segment["blocks"]:
        typed(block, BLOCK)
        assert block["state"] in STATES and block["address"] == at
        assert block["requested_size"] <= block["size"]
        at += block["size"]
    assert at == segment["address"] + segment["total_size"]
    size = {state: sum(b["size"] for b in segment["blocks"] if b["state"] == state) for state in STATES}
    assert segment["allocated_size"] == size["active_allocated"]
    assert segment["active_size"] == size["active_allocated"] + size["active_pending_free"]
    assert segment["requested_size"] == sum(b["requested_size"] for b in segment["blocks"])


def check_trace(trace, blocks):
    """Goes back from the blocks through the events, as the viewer does: every event must find its block or segment."""
    now = dict(blocks)
    for event in reversed(trace):
        typed(event, OOM if event["action"] == "oom" else EVENT)
        assert event["action"] in ACTIONS, event
        address = event.get("addr")
        if event["action"] == "alloc":
            assert now.pop(address) == "active_allocated"
        elif event["action"] == "free_requested":
            assert now[address] == "active_pending_free"
            now[address] = "active_allocated"
        elif event["action"] == "free_completed":
            assert address not in now
            now[address] = "active_pending_free"
    assert all(a["time_us"] <= b["time_us"] for a, b in zip(trace, trace[1:]))
    return now


def map_again(held, start, end, stream, joins):
    """The viewer's way back over an unmapping or a freed segment: neighbours of the same stream are joined."""
    at = sum(s[0] <= start for s in held)
    held.insert(at, [start, end, stream])
    if joins and at + 1 < len(held) and end == held[at + 1][0] and stream == held[at + 1][2]:
        held[at][1] = held.pop(at + 1)[1]
    if joins and at > 0 and held[at - 1][1] == start and held[at - 1][2] == stream:
        held[at - 1][1] = held.pop(at)[1]


def unmap_again(held, start, end, stream, parts):
    """The viewer's way back over a mapping, which must lie in one of the segments, or over a segment, which must be one."""
    found = [s for s in held if s[0] <= start and end <= s[1]]
    assert found and (parts or found[0][:2] == [start, end]), (hex(start), end - start, stream)
    left, right = [found[0][0], start, found[0][2]], [end, found[0][1], stream if found[0][0] < start else found[0][2]]
    at = held.index(found[0])
    held[at:at + 1] = [part for part in (left, right) if part[0] < part[1]]


def check_segments(trace, segments, spoken):
    """Allocator State History: every mapping is found on the way back, and every block lies in a segment while it lives.
    `spoken`: some event is on a stream other than the default one; without one, the viewer ignores the streams of events."""
    held = sorted([s["address"], s["address"] + s["total_size"], s["stream"]] for s in segments)
    for event in reversed(trace):
        start, action = event.get("addr"), event["action"]
        stream = event["stream"] if spoken else None
        if action in ("segment_free", "segment_unmap"):
            map_again(held, start, start + event["size"], stream, action == "segment_unmap")
        elif action in ("segment_alloc", "segment_map"):
            unmap_again(held, start, start + event["size"], stream, action == "segment_map")
        elif action in ("alloc", "free_requested", "free_completed"):
            assert any(s[0] <= start < s[1] for s in held), (event, held)
    assert not held or not trace, held


def check_all_frames(snapshot, program):
    blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
    events = [e for t in snapshot["device_traces"] for e in t]
    for holder in blocks + events:
        check_frames(holder, program)
    if program:
        assert all(b["frames"] for b in blocks if b["state"] != "inactive")
        assert all(e["frames"] for e in events if e["action"] in ("alloc", "free_requested"))
        allocs = [e for e in events if e["action"] == "alloc"]
        assert allocs[1]["frames"] is allocs[2]["frames"], "a stack that comes again is written once"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", metavar="PART")
    parser.add_argument("file")
    args = parser.parse_args()
    with open(args.file, "rb") as file:
        data = file.read()
    used = {op.name for op, _, _ in pickletools.genops(data)}
    assert used <= VIEWER, used - VIEWER
    assert data[1] == 2
    snapshot = pickle.loads(data)
    assert set(snapshot) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    for segment in snapshot["segments"]:
        check_segment(segment)
    order = [(s["device"], s["address"]) for s in snapshot["segments"]]
    assert order == sorted(order)
    spoken = any(e["stream"] != 0 for trace in snapshot["device_traces"] for e in trace)
    for device, trace in enumerate(snapshot["device_traces"]):
        check_segments(trace, [s for s in snapshot["segments"] if s["device"] == device], spoken)
        blocks = {b["address"]: b["state"] for s in snapshot["segments"] if s["device"] == device
                  for b in s["blocks"] if b["state"] != "inactive"}
        assert check_trace(trace, blocks) == {} or not trace
        came = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}
        held = sum(came.get(e["action"], 0) * e["size"] for e in trace)
        assert held == sum(s["total_size"] for s in snapshot["segments"] if s["device"] == device) or not trace
    check_all_frames(snapshot, args.frames)
    settings = snapshot["allocator_settings"]
    assert settings["max_split_size"] == -1 and settings["expandable_segments"] is False
    assert settings["trace_alloc_max_entries"] >= max(map(len, snapshot["device_traces"]))
    assert settings["trace_alloc_overflowed"] is False
    assert list(settings["roundup_power2_divisions"]) == [str(1 << i) for i in range(16)]
    if args.frames:
        return
    metadata = {e["user_metadata"] for t in snapshot["device_traces"] for e in t}
    actions = {e["action"] for t in snapshot["device_traces"] for e in t}
    assert metadata == {"first", ""} and actions >= {"alloc", "oom", "snapshot"}, (metadata, actions)
    print(len(snapshot["segments"]), "segments,", [len(t) for t in snapshot["device_traces"]], "events")


if __name__ == "__main__":
    main()
