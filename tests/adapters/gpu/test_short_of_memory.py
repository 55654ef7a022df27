"""PyTorch's own allocator runs short of memory, on a GPU, and `weir replay` repeats from the recordings every segment that it took
and gave back. When a use ended is not in a recording, so one of them may come out differently. REPLAY_COMMAND names the command;
KEEP_RECORDINGS, a folder for those that are not repeated. Run by scripts/clients, a process per file."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import torch

COMMAND = os.environ.pop("REPLAY_COMMAND", "")
KEEP = os.environ.pop("KEEP_RECORDINGS", "")
JOB = pathlib.Path(__file__).parents[3] / "bench/clients/short_of_memory.py"
JOBS = {"plain-1": ("", "500", "1", "1500"), "plain-2": ("", "500", "2", "1500"), "ballast": ("", "700", "3", "1000", "--ballast"),
        "split-20": ("max_split_size_mb:20", "600", "4", "1500"), "split-32": ("max_split_size_mb:32", "600", "5", "1500"),
        "split-64": ("max_split_size_mb:64", "600", "6", "1500"), "emptied": ("", "500", "7", "1500", "--empties"),
        "split-emptied": ("max_split_size_mb:32", "500", "8", "1500", "--empties", "--stacks")}


def setUpModule():
    if not torch.cuda.device_count():
        raise unittest.SkipTest("there is no GPU")
    if not COMMAND:
        raise unittest.SkipTest("REPLAY_COMMAND does not name the command")


def replayed(name, config, *arguments):
    """How many segment events there are, and how many were repeated."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/{name}.pickle.gz"
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": config}
        subprocess.run([sys.executable, str(JOB), *arguments, "--record", path], env=environment, check=True,
                       capture_output=True)
        told = subprocess.run([COMMAND, "replay", "--policy", "torch", "--repeat", "1", "--reproduce", path],
                              capture_output=True, text=True, check=False)
        repeated, events = map(int, re.search(r"reproduced: (\d+) of (\d+) segment events", told.stdout).groups())
        if repeated < events and KEEP:
            shutil.copy(path, KEEP)
    return events, repeated


class ShortOfMemory(unittest.TestCase):
    def test_all_recordings_but_one_at_most_are_repeated(self):
        counts = {name: replayed(name, *job) for name, job in JOBS.items()}
        self.assertGreater(min(events for events, _ in counts.values()), 100)
        others = {name: count for name, count in counts.items() if count[0] != count[1]}
        print(f"not repeated, of {len(JOBS)}: {others or 'none'}", file=sys.stderr)
        self.assertLessEqual(len(others), 1, others)


if __name__ == "__main__":
    unittest.main()
