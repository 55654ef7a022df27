"""Another program than was recorded: perturb.py IN.weirtrace OUT.weirtrace shifted|truncated|shuffled|captured.

shifted leaves out the first twentieth of the blocks, truncated the last two fifths of the events, shuffled exchanges the sizes
of blocks within every fifty. In captured, three graphs were captured one after another: the blocks from 20 to 30, 40 to 50
and 60 to 70 percent are of three private pools. Blocks get new addresses, so that none overlap.
"""
import random
import struct
import sys

ALLOC, FREE_REQUESTED, FREE_COMPLETED, RECORD_STREAM = 1, 2, 3, 10
EVENT = struct.Struct("<QQQQQQHhI")  # weir_event: time, address, size, stream, pool[2], kind, device, thread
ADDRESS, SIZE, POOL, KIND = 1, 2, 4, 6


def read(path):
    with open(path, "rb") as file:
        data = file.read()
    header_bytes, event_bytes = struct.unpack_from("<II", data, 12)
    (count,) = struct.unpack_from("<Q", data, 24)
    events = [list(EVENT.unpack_from(data, header_bytes + i * event_bytes)) for i in range(count)]
    return bytearray(data[:header_bytes]), [e for e in events if e[KIND] in (ALLOC, FREE_REQUESTED, FREE_COMPLETED, RECORD_STREAM)]


def blocks_of(events):
    """The events of each block, in order of their allocation; blocks from before the first event are left out."""
    live, blocks = {}, []
    for event in events:
        if event[KIND] == ALLOC:
            live[event[ADDRESS]] = [event]
            blocks.append(live[event[ADDRESS]])
        elif event[ADDRESS] in live:
            live[event[ADDRESS]].append(event)
    return blocks


def shuffle(blocks):
    source = random.Random(1)
    for first in range(0, len(blocks), 50):
        some = blocks[first:first + 50]
        sizes = [block[0][SIZE] for block in some]
        source.shuffle(sizes)
        for block, size in zip(some, sizes):
            for event in block:
                event[SIZE] = size


def capture(blocks):
    for number, block in enumerate(blocks):
        tenth = 10 * number // len(blocks)
        if tenth in (2, 4, 6):
            for event in block:
                event[POOL] = tenth // 2


def main():
    header, events = read(sys.argv[1])
    how = sys.argv[3]
    if how == "truncated":
        events = events[:len(events) * 3 // 5]
    blocks = blocks_of(events)
    if how == "shifted":
        blocks = blocks[len(blocks) // 20:]
    elif how == "shuffled":
        shuffle(blocks)
    elif how == "captured":
        capture(blocks)
    address = 1 << 40
    for block in blocks:
        for event in block:
            event[ADDRESS] = address
        address += block[0][SIZE] // 512 * 512 + 1024
    kept = {id(event) for block in blocks for event in block}
    events = [event for event in events if id(event) in kept]
    struct.pack_into("<I", header, 16, EVENT.size)
    struct.pack_into("<Q", header, 24, len(events))
    struct.pack_into("<QII", header, 32, 0, 0, 0)  # nothing dropped, no stacks
    with open(sys.argv[2], "wb") as file:
        file.write(header + b"".join(EVENT.pack(*event) for event in events))


main()
