"""Stand-in: see torch/__init__.py."""
import itertools

from . import _utils, memory  # noqa: F401
import torch

_initialized = False


def device_count():
    return 1


def is_initialized():
    return _initialized


def initialize():
    """What the first tensor on a GPU does."""
    global _initialized
    _initialized = True


_pools = itertools.count(1)


def graph_pool_handle():
    return 0, next(_pools)


class CUDAGraph:
    """As far as it keeps pools, since 2.14."""

    def _retain_pool(self, _):
        raise RuntimeError("pluggable does not yet support createOrIncrefPool")


def set_per_process_memory_fraction(fraction, device=0):
    memory.current.hooks["set_memory_fraction_fn"](fraction, device)


def empty_cache():
    memory.current.hooks["set_reset_fn"]()


def memory_allocated(device=0):
    return torch._C._cuda_memoryStats(device)["allocated_bytes"]["all"]["current"]


def reset_peak_memory_stats(device=0):
    torch._C._cuda_resetPeakMemoryStats(device)


def reset_accumulated_memory_stats(device=0):
    torch._C._cuda_resetAccumulatedMemoryStats(device)
