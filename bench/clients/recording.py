"""What PyTorch's recording costs: a tensor of 1 MiB made and dropped, in microseconds, under 2, 20 and 60 calls of Python,
the median of five rounds; without recording, with events alone, and with call stacks of both kinds.

    python3 bench/clients/recording.py          # PyTorch's own allocator
    python3 bench/clients/recording.py weir     # WEIR_LIBRARY and PYTHONPATH as docs/python.md says
"""
import sys
import time

import torch

ROUNDS, PAIRS = 5, 20000


def timed(calls: int) -> float:
    if calls > 0:
        return timed(calls - 1)
    start = time.perf_counter()
    for _ in range(PAIRS):
        torch.empty(1 << 20, dtype=torch.uint8, device="cuda")
    return (time.perf_counter() - start) / PAIRS * 1e6


def measure(allocator: str, state: str) -> None:
    rounds = ([timed(calls) for calls in (2, 20, 60)] for _ in range(ROUNDS))
    medians = [sorted(times)[ROUNDS // 2] for times in zip(*rounds)]
    print(f"{allocator:8}{state:22}", *(f"{median:6.2f}" for median in medians), flush=True)


def main() -> None:
    allocator = sys.argv[1] if len(sys.argv) > 1 else "native"
    if allocator == "weir":
        import weir.torch
        weir.torch.install()
    record = torch.cuda.memory._record_memory_history
    timed(0)
    measure(allocator, "off")
    record(context=None, max_entries=100000)
    measure(allocator, "events")
    record(stacks="python", max_entries=100000)
    measure(allocator, 'stacks="python"')
    record(stacks="all", max_entries=100000)
    measure(allocator, 'stacks="all"')
    record(None)
    measure(allocator, "off again")


main()
