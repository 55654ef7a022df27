"""Stand-in: see torch/__init__.py."""
import ctypes

import torch

_P, _I, _Z = ctypes.c_void_p, ctypes.c_int, ctypes.c_ssize_t
_TYPES = {
    "set_init_fn": ctypes.CFUNCTYPE(None, _I),
    "set_reset_fn": ctypes.CFUNCTYPE(None),
    "set_memory_fraction_fn": ctypes.CFUNCTYPE(None, ctypes.c_double, _I),
    "set_base_alloc_fn": ctypes.CFUNCTYPE(_P, _P, ctypes.POINTER(ctypes.c_size_t)),
    "set_record_stream_fn": ctypes.CFUNCTYPE(None, _P, _P),
    "set_begin_allocate_to_pool": None,  # these take C++ types
    "set_end_allocate_to_pool_fn": None,
    "set_release_pool": None,
}
current = None


class _Inner:
    """torch._C._CUDAPluggableAllocator."""

    def __init__(self, alloc, free):
        self.alloc = ctypes.CFUNCTYPE(_P, _Z, _I, _P)(alloc)
        self.free = ctypes.CFUNCTYPE(None, _P, _Z, _I, _P)(free)
        self.hooks = {}
        for name, kind in _TYPES.items():
            setattr(self, name, lambda address, name=name, kind=kind: self._set(name, kind, address))

    def _set(self, name, kind, address):
        if not isinstance(address, int) or not address:
            raise TypeError(f"{name}: incompatible function arguments")
        self.hooks[name] = kind(address) if kind else address


torch._C._cuda_CUDAAllocator = _Inner


class CUDAPluggableAllocator:
    def __init__(self, path_to_so_file, alloc_fn_name, free_fn_name):
        library = ctypes.CDLL(path_to_so_file)
        self._allocator = _Inner(*(ctypes.cast(getattr(library, name), _P).value
                                   for name in (alloc_fn_name, free_fn_name)))

    def allocator(self):
        return self._allocator


def _snapshot():
    return torch._C._cuda_memorySnapshot(None)


def memory_snapshot(mempool_id=(0, 0), include_traces=True):
    return torch._C._cuda_memorySnapshot((*mempool_id, include_traces))["segments"]


def _record_memory_history(enabled="all", context="all", max_entries=1000, skip_actions=()):
    torch._C._cuda_record_memory_history(enabled, context, "all", max_entries, False, False, False, list(skip_actions))


def change_current_allocator(allocator):
    global current
    if torch.cuda.is_initialized() or current is not None:
        raise RuntimeError("Can't swap an already initialized allocator")
    current = allocator.allocator()
