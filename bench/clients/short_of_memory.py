"""A job that runs short of memory again and again, while blocks that it freed are still in use on other streams:
short_of_memory.py MIB SEED STEPS. As soon as more than --share percent of MIB would be live, it frees something at random, so
memory is short only for want of an allocator that puts things together. The limit of MIB is PyTorch's own; --ballast: the GPU has
no more. --record FILE leaves PyTorch's snapshot; --weir uses weir instead of PyTorch's own allocator; --empties: the program
empties the cache now and then. The last line says how often allocations failed, and how long it took."""
import argparse
import ctypes
import gzip
import json
import pickle
import random
import time

import torch

MIB = 1 << 20


def leave_free(amount: int) -> None:
    """Takes all memory but that, behind the allocator's back."""
    runtime, pointer = ctypes.CDLL(None), ctypes.c_void_p()
    while (free := torch.cuda.mem_get_info()[0]) > amount + 2 * MIB:
        if runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(free - amount)) != 0:
            raise RuntimeError("cudaMalloc failed")


def size_of(rand: random.Random) -> int:
    return rand.choice([rand.randrange(1, MIB), rand.randrange(MIB, 24 * MIB), rand.randrange(MIB, 80 * MIB)])


def work(options: argparse.Namespace, rand: random.Random) -> int:
    """How many allocations failed."""
    room, live, failed = options.mib * MIB * options.share // 100, [], 0
    main, sides = torch.cuda.current_stream(), [torch.cuda.Stream() for _ in range(2)]
    for _ in range(options.steps):
        size = size_of(rand)
        while live and sum(t.numel() for t in live) + size > room:
            going = live.pop(rand.randrange(len(live)))
            if rand.random() < 0.4:
                with torch.cuda.stream(rand.choice(sides)):
                    torch.cuda._sleep(rand.choice([10_000, 300_000, 3_000_000]))  # cycles
                    going.record_stream(torch.cuda.current_stream())
            del going
        if options.empties and rand.random() < 0.01:
            torch.cuda.empty_cache()
        with torch.cuda.stream(rand.choice([main, main, main, sides[0]])):
            try:
                live.append(torch.empty(size, dtype=torch.uint8, device="cuda"))
            except torch.OutOfMemoryError:
                failed += 1
    torch.cuda.synchronize()
    return failed


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("mib", type=int)
    parser.add_argument("seed", type=int)
    parser.add_argument("steps", type=int)
    parser.add_argument("--share", type=int, default=72)
    parser.add_argument("--ballast", action="store_true")
    parser.add_argument("--empties", action="store_true")
    parser.add_argument("--record", metavar="FILE")
    parser.add_argument("--stacks", action="store_true", help="record them, too")
    parser.add_argument("--weir", action="store_true")
    options = parser.parse_args()
    if options.weir:
        import weir.torch  # pylint: disable=import-outside-toplevel
        weir.torch.install()
    torch.cuda.init()
    if options.ballast:
        leave_free(options.mib * MIB)
    elif not options.weir:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(options.mib * MIB / total)
    if options.record:
        torch.cuda.memory._record_memory_history(context="all" if options.stacks else None, max_entries=1 << 20)
    begun = time.perf_counter()
    failed = work(options, random.Random(options.seed))
    seconds = time.perf_counter() - begun
    if options.record:
        with gzip.open(options.record, "wb") as file:
            pickle.dump(torch.cuda.memory._snapshot(), file)
    print(json.dumps({"failed": failed, "seconds": seconds}))


if __name__ == "__main__":
    main()
