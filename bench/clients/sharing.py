"""How long it takes to share a tensor with another process, on PyTorch's allocators and on weir:

    python3 bench/clients/sharing.py [--rounds N]

share: pickling the tensor, where the memory is; open: unpickling it in the other process; end: deleting it there. In
us, the median of N rounds, each with a tensor of its own that is not shared before. `again`: the same tensor once more.
Environment as for bench/clients/campaign.py.
"""
import argparse
import os
import pickle
import statistics
import subprocess
import sys
import time

SETTINGS = {"native": {}, "expandable": {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}, "weir": {}}
SIZES = [1 << 12, 1 << 20, 20 << 20, 256 << 20, 1 << 30]


def install(setting):
    if setting == "weir":
        import weir.torch
        weir.torch.install()


def micros(function):
    import torch
    torch.cuda.synchronize()
    start = time.perf_counter_ns()
    result = function()
    return result, (time.perf_counter_ns() - start) / 1000


def other_process(setting, pipe):
    install(setting)
    import torch
    torch.zeros(1, device="cuda")
    pipe.send("ready")
    for data in iter(pipe.recv_bytes, b""):
        kept, opening = micros(lambda: [pickle.loads(data)])
        torch.cuda.synchronize()
        _, ending = micros(kept.clear)
        pipe.send((opening, ending))


def measure(pipe, size, rounds):
    import torch
    from multiprocessing.reduction import ForkingPickler
    kept, rows = [], []
    for _ in range(rounds):
        kept.append(torch.zeros(size, dtype=torch.uint8, device="cuda"))
        times = []
        for _ in range(2):
            data, sharing = micros(lambda: bytes(ForkingPickler.dumps(kept[-1])))
            pipe.send_bytes(data)
            times += [sharing, *pipe.recv()]
        rows.append(times)
        if size >= 1 << 28:
            kept.clear()
            torch.cuda.ipc_collect()
    return [statistics.median(column) for column in zip(*rows)]


def run(setting, rounds):
    install(setting)
    import torch.multiprocessing as multiprocessing
    import torch.multiprocessing.reductions
    torch.multiprocessing.reductions.init_reductions()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=other_process, args=(setting, theirs), daemon=True)
    process.start()
    ours.recv()
    for size in SIZES:
        row = measure(ours, size, rounds)
        print(f"| {setting} | {size >> 10:,} KiB | " + " | ".join(f"{x:,.0f}" for x in row) + " |", flush=True)
    ours.send_bytes(b"")
    process.join(30)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--setting", choices=SETTINGS, help="run one here, as this program does itself")
    options = parser.parse_args()
    if options.setting:
        return run(options.setting, options.rounds)
    print("| setting | tensor | share | open | end | share again | open again | end again |\n|---|---|---|---|---|---|---|---|",
          flush=True)
    for setting, environment in SETTINGS.items():
        command = [sys.executable, __file__, "--setting", setting, "--rounds", str(options.rounds)]
        if subprocess.run(command, env={**os.environ, **environment}, check=False).returncode:
            print(f"| {setting} | failed | | | | | | |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
