"""PyTorch's native allocator in little, below a limit, as a maker of recordings in which memory was short: torch_short.py FOLDER
COUNT [ROOM [DEVICES]] leaves job-0.pickle and so on there. Blocks that another stream uses stay for some requests after their free, and
programs empty the cache themselves in some. With at most ROOM MiB of 500 in use, allocations fail where ROOM is large. The rules
are those of CUDACachingAllocator.cpp (2.11), without private pools."""
import bisect
import pathlib
import pickle
import random
import sys

MIB = 1 << 20
UNLIMITED = 1 << 62
LARGE = 20 * MIB


class Block:
    def __init__(self, address, size, stream, small):
        self.address, self.size, self.stream, self.small = address, size, stream, small
        self.before = self.after = None
        self.free, self.requested = False, 0

    def key(self):
        return self.stream, self.size, self.address


class Allocator:
    def __init__(self, limit, max_split, rand):
        self.limit, self.max_split, self.rand = limit, max_split, rand
        self.free_blocks = {True: [], False: []}  # by small or not, in the order of their keys
        self.segments, self.held, self.requests = {}, 0, 0
        self.pending = {}  # by stream: when the use ends, in requests, and the block
        self.events = []

    def record(self, action, address, size, stream):
        self.events.append({"action": action, "addr": address, "size": size, "stream": stream, "time_us": len(self.events)})

    def put(self, block):
        block.free = True
        bisect.insort(self.free_blocks[block.small], block, key=Block.key)

    def take(self, block):
        block.free = False
        blocks = self.free_blocks[block.small]
        del blocks[bisect.bisect_left(blocks, block.key(), key=Block.key)]

    def find(self, size, stream, small):
        blocks = self.free_blocks[small]
        at = bisect.bisect_left(blocks, (stream, size, 0), key=Block.key)
        if at == len(blocks) or blocks[at].stream != stream:
            return None
        found = blocks[at].size
        fits = found < self.max_split if size < self.max_split else found < size + LARGE
        return blocks[at] if fits else None

    def grow(self, size, stream, small):
        bytes_ = 2 * MIB if small else LARGE if size < 10 * MIB else -(-size // (2 * MIB)) * 2 * MIB
        if self.held + bytes_ > self.limit:
            return None
        address = 0
        while not address or any(address < a + n and a < address + bytes_ for a, n in self.segments.items()):
            address = (1 << 40) + self.rand.randrange(1 << 15) * 2 * MIB
        self.segments[address] = bytes_
        self.held += bytes_
        self.record("segment_alloc", address, bytes_, stream)
        block = Block(address, bytes_, stream, small)
        self.put(block)
        return block

    def give_back(self, block):
        self.take(block)
        self.held -= self.segments.pop(block.address)
        self.record("segment_free", block.address, block.size, block.stream)

    def give_back_oversize(self, size, stream, small):
        """release_available_cached_blocks()"""
        wanted, total = max(size, self.max_split), 0
        if self.max_split == UNLIMITED:
            return False
        blocks = self.free_blocks[small]
        at = bisect.bisect_left(blocks, (stream, wanted, 0), key=Block.key)
        if at < len(blocks) and blocks[at].stream == stream:
            self.give_back(blocks[at])
            return True
        while at > 0 and total < wanted and blocks[at - 1].size >= self.max_split and blocks[at - 1].stream == stream:
            at -= 1
            total += blocks[at].size
            self.give_back(blocks[at])
        return total >= wanted

    def give_back_all(self):
        """release_cached_blocks()"""
        for uses in self.pending.values():
            while uses:
                self.complete(uses.pop(0)[1])
        for small in False, True:
            for block in list(self.free_blocks[small]):
                if not block.before and not block.after:
                    self.give_back(block)

    def complete(self, block):
        self.record("free_completed", block.address, block.requested, block.stream)
        before, after = block.before, block.after
        if before and before.free:
            self.take(before)
            block.address, block.size, block.before = before.address, block.size + before.size, before.before
            if block.before:
                block.before.after = block
        if after and after.free:
            self.take(after)
            block.size, block.after = block.size + after.size, after.after
            if block.after:
                block.after.before = block
        self.put(block)

    def alloc(self, requested, stream):
        self.requests += 1
        for uses in self.pending.values():
            while uses and uses[0][0] <= self.requests:
                self.complete(uses.pop(0)[1])
        size = -(-requested // 512) * 512
        of = size, stream, size <= MIB
        block = self.find(*of) or self.grow(*of) or (self.give_back_oversize(*of) and self.grow(*of) or None)
        if not block:
            self.give_back_all()
            block = self.grow(*of)
        if not block:
            self.events.append({"action": "oom", "size": requested, "stream": stream, "time_us": len(self.events), "device_free": 0})
            return None
        self.take(block)
        rest = block.size - size
        if rest >= 512 if block.small else size < self.max_split and rest > MIB:
            remainder = Block(block.address + size, rest, stream, block.small)
            remainder.before, remainder.after = block, block.after
            if remainder.after:
                remainder.after.before = remainder
            block.after, block.size = remainder, size
            self.put(remainder)
        block.requested = requested
        self.record("alloc", block.address, requested, stream)
        return block

    def free(self, block, used_by=None, until=0):
        self.record("free_requested", block.address, block.requested, block.stream)
        if used_by is None:
            self.complete(block)
        else:
            self.pending.setdefault(used_by, []).append((self.requests + until, block))


def events_of_device(rand, max_split, most):
    empties, latest, room = rand.random() < 0.3, rand.choice([0, 2, 10, 50]), rand.choice([325, 360, 400]) * MIB
    room = most or room
    allocator, live = Allocator(500 * MIB, max_split, rand), []
    for _ in range(600):
        size = rand.choice([rand.randrange(1, MIB), rand.randrange(MIB, 24 * MIB), rand.randrange(MIB, 80 * MIB)])
        while live and sum(b.requested for b in live) + size > room:
            going = live.pop(rand.randrange(len(live)))
            if rand.random() < 0.4:
                allocator.free(going, rand.choice([0x64, 0x65]), rand.randrange(latest + 1))
            else:
                allocator.free(going)
        if empties and rand.random() < 0.01:
            allocator.give_back_all()
        block = allocator.alloc(size, rand.choice([0, 0, 0, 0x64]))
        if block:
            live.append(block)
    return allocator.events


def recording(seed, most, devices):
    rand = random.Random(seed)
    max_split = rand.choice([UNLIMITED, UNLIMITED, 20 * MIB, 32 * MIB, 64 * MIB])
    traces = [events_of_device(rand, max_split, most) for _ in range(devices)]
    if devices > 1:  # as of threads of their own
        for trace in traces:
            for event, time in zip(trace, sorted(rand.sample(range(1 << 20), len(trace)))):
                event["time_us"] = time
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1 if max_split == UNLIMITED else max_split,
                "garbage_collection_threshold": 0.0}
    return {"segments": [], "device_traces": traces, "allocator_settings": settings}


def main():
    folder = pathlib.Path(sys.argv[1])
    most = int(sys.argv[3]) * MIB if len(sys.argv) > 3 else None
    devices = int(sys.argv[4]) if len(sys.argv) > 4 else 1
    for seed in range(int(sys.argv[2])):
        (folder / f"job-{seed}.pickle").write_bytes(pickle.dumps(recording(seed, most, devices)))


if __name__ == "__main__":
    main()
