"""Records what jobs allocate, as PyTorch's snapshots: scripts/record runs this. Each job is a child of its own, forked before
anything uses the GPU, with PyTorch's own allocator, and leaves DIR/JOB.pickle.gz."""
import argparse
import gzip
import os
import pathlib
import pickle
import sys
import time
import traceback

import torch

from jobs import JOBS
from recorded import RECORDED

ALL = {**JOBS, **RECORDED}
EVENTS = 1 << 22  # the most that PyTorch keeps


def recorded(name: str, last: int) -> dict:
    """The snapshot of what was recorded: all of it, or the last events."""
    torch.cuda.synchronize()
    numbers = torch.cuda.memory_stats()
    print(f"{name}: requested {numbers['requested_bytes.all.peak']}, reserved {numbers['reserved_bytes.all.peak']}", flush=True)
    snapshot = torch.cuda.memory._snapshot()
    if not last and any(len(events) >= EVENTS for events in snapshot["device_traces"]):
        raise RuntimeError(f"{name}: the first events are lost, there were more than {EVENTS}; record fewer steps: --size quick")
    return snapshot


def run(name: str, device: torch.device, size: str, out: pathlib.Path, last: int) -> None:
    gpu = device.type == "cuda"
    torch.manual_seed(1)
    target = out / f"{name}.pickle.gz"
    target.unlink(missing_ok=True)  # so that no file of an earlier run stays if this one fails
    if gpu:
        torch.cuda.set_device(device)
        torch.cuda.memory._record_memory_history(enabled="all", context=None, max_entries=last or EVENTS)
    start = time.perf_counter()
    job = ALL[name](device, size)
    numbers = [job.step(i) for i in range(job.steps[size])]
    print(f"{name}: {len(numbers)} steps in {time.perf_counter() - start:.1f} s, the last gave {numbers[-1]}", flush=True)
    if gpu:
        data = gzip.compress(pickle.dumps(recorded(name, last)), 6)
        target.write_bytes(data)


def begin(name: str, options: argparse.Namespace) -> int:
    pid = os.fork()
    if pid == 0:
        status = 0
        try:
            run(name, options.device, options.size, options.out, options.last)
        except Exception:  # the other jobs go on
            traceback.print_exc()
            status = 1
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)
    return pid


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/record")
    parser.add_argument("out", type=pathlib.Path, metavar="DIR")
    parser.add_argument("jobs", nargs="*", metavar="JOB", help=f"default all: {', '.join(ALL)}")
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda:0"), help="cpu: only runs them")
    parser.add_argument("--size", choices=["tiny", "quick", "full"], default="quick")
    parser.add_argument("--at-once", type=int, default=4, metavar="N", help="so many jobs at a time (default 4)")
    parser.add_argument("--last", type=int, default=0, metavar="N", help="keep the last N events only, as a ring does that is full")
    options = parser.parse_intermixed_args()
    waiting = options.jobs or [name for name in ALL if options.size in ALL[name].steps]
    for name in waiting:
        if name not in ALL or options.size not in ALL[name].steps:
            parser.error(f"there is no job '{name}' of size {options.size}; there are "
                         f"{', '.join(n for n in ALL if options.size in ALL[n].steps)}")
    waiting, at_once = list(dict.fromkeys(waiting)), max(1, options.at_once)
    options.out.mkdir(parents=True, exist_ok=True)
    running, failed = {}, []
    while waiting or running:
        while waiting and len(running) < at_once:
            name = waiting.pop(0)
            running[begin(name, options)] = name
        pid, status = os.wait()
        name = running.pop(pid)
        if status != 0:
            print(f"{name}: failed", file=sys.stderr, flush=True)
            failed.append(name)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
