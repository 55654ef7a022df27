"""PyTorch's own allocator runs short of memory, on a GPU, and `weir replay` repeats from the recordings every segment that it took
and gave back. REPLAY_COMMAND names the command. Run by scripts/clients, a process per file."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import torch

COMMAND = os.environ.pop("REPLAY_COMMAND", "")
JOB = pathlib.Path(__file__).parents[3] / "bench/clients/short_of_memory.py"


def setUpModule():
    if not torch.cuda.device_count():
        raise unittest.SkipTest("there is no GPU")
    if not COMMAND:
        raise unittest.SkipTest("REPLAY_COMMAND does not name the command")


def replayed(config, *arguments):
    """How many segment events there are, and how many were repeated."""
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/job.pickle.gz"
        environment = {**os.environ, "PYTORCH_CUDA_ALLOC_CONF": config}
        subprocess.run([sys.executable, str(JOB), *arguments, "--record", path], env=environment, check=True,
                       capture_output=True)
        told = subprocess.run([COMMAND, "replay", "--policy", "torch", "--repeat", "1", "--reproduce", path],
                              capture_output=True, text=True, check=False)
    repeated, events = re.search(r"job: reproduced: (\d+) of (\d+) segment events", told.stdout).groups()
    return int(events), int(repeated)


class ShortOfMemory(unittest.TestCase):
    def assert_repeats(self, config, *arguments):
        events, repeated = replayed(config, *arguments)
        self.assertGreater(events, 200)
        self.assertEqual(repeated, events)

    def test_uses_on_other_streams_are_waited_for(self):
        for seed in "1", "2":
            self.assert_repeats("", "500", seed, "1500")

    def test_the_gpu_itself_has_no_more(self):
        self.assert_repeats("", "700", "3", "1000", "--ballast")

    def test_max_split_size_chooses_what_goes(self):
        for seed, mib in ("4", 20), ("5", 32), ("6", 64):
            self.assert_repeats(f"max_split_size_mb:{mib}", "600", seed, "1500")

    def test_the_program_empties_the_cache_too(self):
        self.assert_repeats("", "500", "7", "1500", "--empties")
        self.assert_repeats("max_split_size_mb:32", "500", "8", "1500", "--empties", "--stacks")


if __name__ == "__main__":
    unittest.main()
