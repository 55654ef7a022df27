"""How many allocations of a job fail that is short of memory (short_of_memory.py), and how long it takes, with PyTorch's own
allocators and with weir, on a GPU with so much memory left. scripts/clients runs this."""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

JOB = pathlib.Path(__file__).with_name("short_of_memory.py")
SETTINGS = {"native": (None, []), "max_split_size_mb:32": ("max_split_size_mb:32", []),
            "expandable_segments:True": ("expandable_segments:True", []),
            "backend:cudaMallocAsync": ("backend:cudaMallocAsync", []), "weir": (None, ["--weir"])}


def outcome(config: str | None, more: list[str], options: argparse.Namespace, share: int, seed: int) -> dict:
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")}
    if config:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = config
    arguments = [str(options.mib), str(seed), str(options.steps), "--share", str(share), "--ballast"]
    done = subprocess.run([sys.executable, "-W", "ignore", str(JOB), *arguments, *more], env=environment, text=True,
                          stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--shares", type=int, nargs="+", default=[70, 80, 90])
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    print(f"{options.steps} allocations of 1 byte to 80 MiB on two of three streams, {options.mib} MiB left on the GPU, median of "
          f"{options.seeds}: allocations that failed, and seconds\n")
    print("| live at most | " + " | ".join(SETTINGS) + " |\n|---|" + "---|" * len(SETTINGS))
    for share in options.shares:
        cells = []
        for config, more in SETTINGS.values():
            runs = [outcome(config, more, options, share, 1 + seed) for seed in range(options.seeds)]
            cells.append(f"{statistics.median(r['failed'] for r in runs):g}, {statistics.median(r['seconds'] for r in runs):.2f} s")
        print(f"| {share} % | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
