#!/usr/bin/env python3
"""Writes the pickles of this folder: one small memory snapshot in every protocol and in
every shape that picklers give it. `python3 tests/data/pickles/make.py`; the files are committed, so the tests need no Python.
"""
import io
import pathlib
import pickle
import pickletools
import struct

HERE = pathlib.Path(__file__).resolve().parent


def snapshot():
    frames = [{"filename": "train.py", "line": 12, "name": "step\\with é and a\nline"}] * 2
    shared = [{"filename": "model.py", "line": 3, "name": "forward"}]

    def event(action, addr, size, time_us, **more):
        return {"action": action, "addr": addr, "size": size, "stream": 0, "time_us": time_us, "frames": shared, **more}

    first = [
        event("segment_alloc", 0x7F0000000000, 2097152, 1000),
        event("alloc", 0x7F0000000000, 1000, 1001, pool_id=(0, 0), user_metadata=""),
        event("alloc", 0x7F0000000400, 5000, 1003, frames=frames, pool_id=(0, 7), stream=0x55550000),
        event("free_requested", 0x7F0000000000, 1000, 1005),
        event("free_completed", 0x7F0000000000, 1000, 1006),
        event("segment_map", 0xFFFF800000000000, 20971520, 1007),
        event("segment_unmap", 0xFFFF800000000000, 20971520, 1008),
        event("snapshot", 0, 5000, 1010),
    ]
    oom = event("oom", 0, 1 << 40, 1002)
    del oom["addr"]
    oom["device_free"] = 4096
    second = [oom, event("segment_free", 0x7F1000000000, 2097152, 1003)]
    segment = {
        "device": 0, "address": 0x7F0000000000, "total_size": 2097152, "allocated_size": 5120, "active_size": 7168,
        "requested_size": 5000, "stream": 0, "segment_type": "small", "segment_pool_id": (0, 7),
        "is_expandable": False, "frames": [],
        "blocks": [
            {"address": 0x7F0000000000, "size": 1024, "requested_size": 1000, "state": "inactive", "frames": shared},
            {"address": 0x7F0000000400, "size": 5120, "requested_size": 5000, "state": "active_allocated", "frames": frames},
            {"address": 0x7F0000001800, "size": 2048, "requested_size": 2000, "state": "active_pending_free", "frames": []},
            {"address": 0x7F0000002000, "size": 2088960, "requested_size": 0, "state": "inactive", "frames": []},
        ],
    }
    divisions = {str(1 << i): 0 for i in range(16)}
    divisions.update({"256": 1, "512": 2, "1024": 8})
    return {
        "segments": [segment],
        "device_traces": [first, second, []],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:64",
            "max_split_size": 67108864, "garbage_collection_threshold": 0.75, "expandable_segments": True,
            "roundup_power2_divisions": divisions,
        },
        "external_annotations": [{"stage": "START", "name": "x", "action": "mine", "device": 0, "time_us": 1}],
    }


def old_snapshot():
    """As PyTorch 2.0 wrote them: no trace settings, no addresses of blocks, the requested size in a history."""
    blocks = [
        {"size": 512, "state": "active_allocated", "history": [{"addr": 4096, "real_size": 300, "frames": []}]},
        {"size": 1536, "state": "inactive"},
        {"size": 2048, "state": "active_awaiting_free"},
    ]
    return [{"device": 1, "address": 4096, "total_size": 4096, "stream": 0, "segment_type": "small", "blocks": blocks}]


class TorchPickler:
    """The shape that PyTorch's C++ pickler gives its snapshots: protocol 2, one batch per container, BINUNICODE, numbers
    as BININT or an 8-byte LONG1, containers memoized after they are filled."""

    def __init__(self):
        self.out, self.memo = io.BytesIO(), {}

    def put(self):
        n = len(self.memo)
        self.out.write(b"q" + bytes([n]) if n < 256 else b"r" + struct.pack("<I", n))
        return n

    def string(self, text):
        if text in self.memo:
            n = self.memo[text]
            self.out.write(b"h" + bytes([n]) if n < 256 else b"j" + struct.pack("<I", n))
            return
        raw = text.encode()
        self.out.write(b"X" + struct.pack("<I", len(raw)) + raw)
        self.memo[text] = self.put()

    def value(self, v):
        write = self.out.write
        if isinstance(v, bool):
            write(b"\x88" if v else b"\x89")
        elif isinstance(v, int):
            if -(1 << 31) <= v < 1 << 31:
                write(b"K" + bytes([v]) if 0 <= v < 256 else b"J" + struct.pack("<i", v))
            else:
                write(b"\x8a\x08" + struct.pack("<q", v - (1 << 64) if v >= 1 << 63 else v))
        elif isinstance(v, float):
            write(b"G" + struct.pack(">d", v))
        elif isinstance(v, str):
            self.string(v)
        elif isinstance(v, tuple):
            for item in v:
                self.value(item)
            write(b"\x86")
        elif isinstance(v, list):
            write(b"](")
            for item in v:
                self.value(item)
            write(b"e")
            self.memo[object()] = self.put()
        else:
            write(b"}(")
            for key in sorted(v):
                self.value(key)
                self.value(v[key])
            write(b"u")
            self.memo[object()] = self.put()

    def dump(self, v):
        self.out.write(b"\x80\x02")
        self.value(v)
        self.out.write(b".")
        return self.out.getvalue()


def batches_of(size, value, protocol):
    """The pure-Python pickler writes the same bytes as the C one. Other batch sizes show the rest of the format: with 1,
    APPEND and SETITEM alone; with 3, containers filled in several rounds."""
    out = io.BytesIO()
    pickler = pickle._Pickler(out, protocol)
    pickler._BATCHSIZE = size
    pickler.dump(value)
    return out.getvalue()


def main():
    files = {f"snapshot-{protocol}": pickle.dumps(snapshot(), protocol) for protocol in range(6)}
    files["snapshot-batch1"] = batches_of(1, snapshot(), 4)
    files["snapshot-batch3"] = batches_of(3, snapshot(), 2)
    files["snapshot-optimized"] = pickletools.optimize(pickle.dumps(snapshot(), 4))
    files["snapshot-torch"] = TorchPickler().dump(snapshot())
    files["segments-old"] = pickle.dumps(old_snapshot(), 2)
    for name, data in files.items():
        (HERE / f"{name}.pickle").write_bytes(data)


if __name__ == "__main__":
    main()
