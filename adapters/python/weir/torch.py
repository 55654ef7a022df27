"""weir as PyTorch's allocator.

    import weir.torch
    weir.torch.install()        # before anything uses CUDA

From then on everything that PyTorch allocates on GPUs comes from weir, and torch.cuda.OutOfMemoryError, empty_cache(),
record_stream(), set_per_process_memory_fraction(), memory_stats() and graph captures work as before. docs/python.md
says what does not.
"""
import atexit
import contextlib
import ctypes
import importlib
import os
import pickle
import re
import sys
import tempfile
import threading
import warnings
from functools import partial
from typing import IO, Any, Dict, Iterable, List, Optional, Set, Tuple

from . import _library
from ._library import Error

_HOOKS = {
    "set_init_fn": "weir_torch_init",
    "set_reset_fn": "weir_torch_reset",
    "set_memory_fraction_fn": "weir_torch_memory_fraction",
    "set_base_alloc_fn": "weir_torch_base_alloc",
    "set_record_stream_fn": "weir_torch_record_stream",
    "set_begin_allocate_to_pool": "weir_torch_begin_allocate_to_pool",
    "set_end_allocate_to_pool_fn": "weir_torch_end_allocate_to_pool",
    "set_release_pool": "weir_torch_release_pool",
}

_lock = threading.Lock()  # of install()
_installed: Optional[Any] = None  # PyTorch's object, which must stay alive
_replaced: Dict[str, Any] = {}  # functions of torch._C, by name
_answers = False
_told: Tuple[Optional[str], Tuple[str, ...]] = ("all", ())  # which recorded stacks, and which events not, a snapshot has


def _torch() -> Any:
    try:
        import torch
    except ImportError as error:
        raise Error(f"weir.torch: PyTorch cannot be imported: {error}") from error
    if torch.version.cuda is None and torch.version.hip is None:
        raise Error(f"weir.torch: PyTorch {torch.__version__} was built without CUDA and ROCm, so it has no allocator "
                    "to replace; install a build for your GPU")
    return torch


_own: List[Any] = []  # all allocators that end in weir


def _allocator(torch: Any, alloc: str, free: str) -> Any:
    made = torch.cuda.memory.CUDAPluggableAllocator(_library.adapters_path(), alloc, free)
    _own.append(made)
    return made


def install(statistics: bool = True) -> None:
    """Makes weir the allocator of all GPU memory of PyTorch, for the rest of the process. Calling it again does
    nothing.

    With statistics, torch.cuda.memory_stats() and what is built on it (memory_allocated(), max_memory_reserved(),
    memory_summary(), reset_peak_memory_stats(), ...) give weir's numbers, as torch.accelerator's functions do; without,
    PyTorch refuses them. Memory snapshots have weir's blocks in any case.

    Raises Error when PyTorch has already used CUDA: its allocator cannot be changed after that.
    """
    torch = _torch()
    with _lock:
        if _installed is None:
            _install(torch, statistics)


def _install(torch: Any, statistics: bool) -> None:
    global _installed, _answers
    if torch.cuda.is_initialized():
        raise Error("weir.torch.install() comes too late: PyTorch has already initialised CUDA. Call it right after "
                    "importing torch, before the first tensor, model or torch.cuda call that reaches a GPU")
    adapters = _library.adapters()
    allocator = _allocator(torch, "weir_torch_alloc", "weir_torch_free")
    for setter, hook in _HOOKS.items():
        set_hook = getattr(allocator.allocator(), setter, None)
        if set_hook is None:
            raise Error(f"weir.torch: PyTorch {torch.__version__} has no {setter}; weir needs 2.3 or later")
        set_hook(ctypes.cast(getattr(adapters, hook), ctypes.c_void_p).value)
    try:
        torch.cuda.memory.change_current_allocator(allocator)
    except RuntimeError as error:
        raise Error("weir.torch.install() comes too late: PyTorch's own allocator, or another one, is already in use: "
                    f"{error}") from error
    _installed = allocator
    torch.cuda.MemPool = torch.cuda.memory.MemPool = MemPool
    if hasattr(torch.cuda.memory, "MemPoolContext"):  # up to PyTorch 2.7, whose use_mem_pool() makes one
        torch.cuda.MemPoolContext = torch.cuda.memory.MemPoolContext = MemPoolContext
    _replace(torch, {"_cuda_checkPoolLiveAllocations": _has_live, "_cuda_memorySnapshot": _snapshot,
                     "_cuda_setMemoryMetadata": _set_metadata, "_cuda_getMemoryMetadata": lambda: _metadata.text})
    if hasattr(torch.cuda.CUDAGraph, "_retain_pool"):  # since PyTorch 2.14. weir's graphs keep the pools that they use
        torch.cuda.CUDAGraph._retain_pool = lambda graph, pool: None
    cuda = torch.version.cuda  # None: a build for ROCm
    adapters.weir_torch_answer.restype = ctypes.c_bool
    _answers = adapters.weir_torch_answer(int(cuda.split(".")[0]) if cuda else 0)
    _tell_profiler(torch, adapters)
    _tell_trace(torch, adapters)
    if statistics:
        _tell_statistics(torch)
    _warn(torch)


def _warn(torch: Any) -> None:
    """Last, since a program may have made errors of warnings."""
    if not _answers:
        warnings.warn(f"weir.torch: PyTorch {torch.__version__} has another allocator than weir knows; it raises an "
                      "error for convolutions under torch.backends.cudnn.benchmark, so leave that False, and for "
                      "torch.compile(mode=\"reduce-overhead\"); PyTorch 2.15 aborts in NCCL's process groups unless "
                      "TORCH_DIST_USE_NCCL2=0 is set", RuntimeWarning, stacklevel=4)
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        warnings.warn("weir.torch: PYTORCH_NO_CUDA_MEMORY_CACHING is set, but weir caches all the same; WEIR_DEBUG=nosub "
                      "gives each block memory of its own", RuntimeWarning, stacklevel=4)
    for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"):
        if "per_process_memory_fraction" in os.environ.get(name, ""):
            warnings.warn(f"weir.torch: {name} has per_process_memory_fraction, which limits only the allocator that weir "
                          "replaces; call torch.cuda.set_per_process_memory_fraction(), or set WEIR_MEMORY_LIMIT",
                          RuntimeWarning, stacklevel=4)


def installed() -> bool:
    """Whether install() has been done."""
    return _installed is not None


def answers() -> bool:
    """Whether weir stands in PyTorch's allocator itself, and not only behind its hooks: torch.backends.cudnn.benchmark,
    torch.compile(mode="reduce-overhead"), get_per_process_memory_fraction(), tensors for other processes
    (torch.multiprocessing), NCCL's process groups of PyTorch 2.15 and functions attached for when memory runs out work
    then, and allocating takes no lock of PyTorch's. Without, PyTorch raises RuntimeError for those. False before
    install()."""
    return _answers


def raises_its_own() -> bool:
    """Whether running out of memory raises torch.cuda.OutOfMemoryError. Else it raises RuntimeError, because this
    PyTorch's own exception was not found. Both have weir's text."""
    raises = _library.adapters().weir_torch_raises_its_own
    raises.restype = ctypes.c_bool
    return bool(raises())


def pool_allocator() -> Any:
    """An allocator for torch.cuda.MemPool, which may be made after CUDA was initialised and leaves PyTorch's own
    allocator in place: the pool's segments come from weir, and PyTorch splits them.

        pool = torch.cuda.MemPool(weir.torch.pool_allocator().allocator())
        with torch.cuda.use_mem_pool(pool):
            ...

    PyTorch keeps the segments until the pool has ended and torch.cuda.empty_cache() is called. Keep the returned
    object as long as the pool.
    """
    torch = _torch()
    if _installed is not None:
        raise Error("weir.torch.pool_allocator() works with PyTorch's own allocator, but weir.torch.install() has "
                    "replaced it: every torch.cuda.MemPool() is a pool of weir's now; leave its allocator out")
    _library.adapters()
    return _allocator(torch, "weir_torch_alloc_segment", "weir_torch_free_segment")


def release_stream(stream: Any) -> None:
    """To be called before a stream ends that is not PyTorch's own (torch.cuda.ExternalStream, or GreenContext.Stream()
    before its context goes): waits for its work, after which weir forgets it, and what is free on it serves others."""
    _library.call("weir_stream_destroy", _library.stream_of(stream.device.index, stream.cuda_stream))


def memory_stats(device: Any = None) -> Dict[str, Any]:
    """weir's numbers under the keys of torch.cuda.memory_stats() ("allocated_bytes.all.current", ...). They cover all
    users of the device in the process."""
    flat: Dict[str, Any] = {}

    def flatten(prefix: str, value: Any) -> None:
        if isinstance(value, dict):
            for key, inner in value.items():
                name = "_".join(map(str, key)) if isinstance(key, tuple) else key
                flatten(f"{prefix}.{name}" if prefix else name, inner)
        else:
            flat[prefix] = value

    flatten("", _nested_with_pools(_index(device)))
    return dict(sorted(flat.items()))


def _index(device: Any) -> int:
    return _there(_torch().cuda._utils._get_device_index(device, optional=True))


def _there(index: Optional[int]) -> int:
    if index is None:
        raise Error("weir.torch: PyTorch has no GPU here, so there is no current device; name one")
    return int(index)


def _reset(what: str, index: Optional[int]) -> None:
    _library.call(f"weir_stats_reset_{what}", _there(index))


def _by_size(of_kinds: Iterable[_library.Stat]) -> Dict[str, Dict[str, int]]:
    """One of weir's quantities under PyTorch's names."""
    return {name: {"current": stat.current, "peak": stat.peak, "allocated": stat.added, "freed": stat.removed}
            for name, stat in zip(("all", "small_pool", "large_pool"), of_kinds)}


def _private_pools(device: int) -> List[Tuple[Tuple[int, int], _library.Mempool]]:
    """PyTorch's ids, and weir's."""
    pools = _library.adapters().weir_torch_mempools
    pools.restype = ctypes.c_size_t
    count, there = 0, pools(device, None, None, ctypes.c_size_t(0))
    while count < there:  # until no other thread makes one meanwhile
        count = there
        torchs, ours = (_library.Mempool * count)(), (_library.Mempool * count)()
        there = pools(device, torchs, ours, ctypes.c_size_t(count))
    return [((torchs[i].capture, torchs[i].user), ours[i]) for i in range(there)]


def _reserved_by_private_pools(device: int) -> Dict[Tuple[int, int], Any]:
    result = {}
    for name, ours in _private_pools(device):
        numbers = _library.MemoryStats(ctypes.sizeof(_library.MemoryStats))
        with contextlib.suppress(Error):  # it has gone meanwhile
            _library.call("weir_mempool_stats_get", ours, ctypes.byref(numbers))
            result[name] = _by_size(numbers.reserved_bytes)
    return result


def _nested(device: int) -> Dict[str, Any]:
    """As torch._C._accelerator_getDeviceStats(), and _cuda_memoryStats() before PyTorch 2.13."""
    numbers = _library.stats(device)
    none = {"current": 0, "peak": 0, "allocated": 0, "freed": 0}
    result: Dict[str, Any] = {quantity: _by_size(getattr(numbers, quantity)) for quantity in _library.QUANTITIES}
    result.update(num_alloc_retries=numbers.alloc_retries, num_ooms=numbers.ooms, num_sync_all_streams=numbers.syncs,
                  num_device_alloc=numbers.driver_allocs, num_device_free=numbers.driver_frees, num_oom_rejections=0,
                  max_split_size=-1, oversize_allocations=dict(none), oversize_segments=dict(none))
    return result


def _nested_with_pools(device: int) -> Dict[str, Any]:
    """As torch._C._cuda_memoryStats() since PyTorch 2.13. What flattens it before, in Python, fails at a pool's key."""
    return {**_nested(device), "reserved_bytes_by_private_pools": _reserved_by_private_pools(device)}


def _scratch() -> IO[bytes]:
    """A file in memory, where the system has those: there may be no folder to write to."""
    if hasattr(os, "memfd_create"):
        return os.fdopen(os.memfd_create("weir"), "w+b")
    return tempfile.TemporaryFile()


def _snapshot(request: Optional[Tuple[Any, ...]] = None) -> Dict[str, Any]:
    """As torch._C._cuda_memorySnapshot(): `request` has the two numbers of a pool, (0, 0) for all, and in later
    versions whether events are wanted."""
    options = _library.SnapshotOptions(ctypes.sizeof(_library.SnapshotOptions), device=_library.ALL_DEVICES,
                                       without_history=request is not None and not all(request[2:3]))
    with _scratch() as file:
        _library.call("weir_snapshot_write", file.fileno(), ctypes.byref(options))
        file.seek(0)
        result: Dict[str, Any] = pickle.load(file)
    names: Dict[Tuple[int, Tuple[int, int]], Tuple[int, int]] = {}

    def name(device: int, ours: Tuple[int, int]) -> Tuple[int, int]:
        if (device, ours) not in names:
            names[device, ours] = _torchs_name(device, ours)
        return names[device, ours]

    pool = tuple(request[:2]) if request else (0, 0)
    for segment in result["segments"]:
        segment["segment_pool_id"] = name(segment["device"], segment["segment_pool_id"])
    if pool != (0, 0):
        result["segments"] = [segment for segment in result["segments"] if segment["segment_pool_id"] == pool]
    for device, events in enumerate(result["device_traces"]):
        result["device_traces"][device] = events = _as_asked(events)
        for event in events:
            event["pool_id"] = name(device, event["pool_id"])
    if request is None:
        _add_pinned(result)
    return result


def _as_asked(events: List[Dict[str, Any]]) -> List[Dict[str, Any]]:
    """What _record_memory_history() was asked for: weir records all kinds of events, and the stacks of all. Where those of
    frees were not asked for, what is freed has the stack of who allocated it, as in PyTorch."""
    context, skipped = _told
    made: Dict[Tuple[bool, int], Any] = {}  # stacks, of blocks and of segments, by address
    for event in events if context in ("alloc", "state") else ():
        action = event["action"]
        if context == "state":
            event["frames"] = []
        elif "addr" in event:
            place = action.startswith("segment"), event["addr"]
            if action in ("alloc", "segment_alloc", "segment_map"):
                made[place] = event["frames"]
            elif action != "snapshot":
                event["frames"] = made.get(place, [])
    return [event for event in events if event["action"] not in skipped] if skipped else events


class _Metadata(threading.local):
    text = ""


_metadata = _Metadata()


def _set_metadata(text: str) -> None:
    """As torch._C._cuda_setMemoryMetadata(): the calling thread's later events have it, as a label of weir's, and so only
    its first 40 bytes."""
    if _metadata.text:
        _library.call("weir_history_label_pop")
    _metadata.text = ""
    if text:
        _library.call("weir_history_label_push", text.encode()[:40].decode(errors="ignore").encode())
        _metadata.text = text


def _add_pinned(snapshot: Dict[str, Any]) -> None:
    """What PyTorch has of pinned memory, which is its own: its settings and, since 2.15, its part of a snapshot."""
    with contextlib.suppress(RuntimeError):  # it may not ask weir for the rest
        own = _replaced["_cuda_memorySnapshot"](None)
        snapshot.update((part, own[part]) for part in ("host_segments", "host_traces") if part in own)
        settings = own.get("allocator_settings", {}).items()
        snapshot["allocator_settings"].update((key, value) for key, value in settings if key.startswith("pinned_"))


def _traceback(pointer: int) -> Optional[List[Dict[str, Any]]]:
    """As torch._C._cuda_allocationTraceback(), since 2.15."""
    for segment in _snapshot((0, 0, False))["segments"]:
        for block in segment["blocks"]:
            if block["address"] == pointer and block["state"] != "inactive":
                return block["frames"] or None
    return None


def _pool(device: int, pool: Tuple[int, int]) -> Tuple[int, Tuple[int, int]]:
    """How many references PyTorch has to the pool, and what weir calls it."""
    ours = (ctypes.c_uint64 * 2)()
    count = _library.adapters().weir_torch_mempool_references(device, *map(ctypes.c_uint64, pool), ours)
    return int(count), (ours[0], ours[1])


def _torchs_name(device: int, ours: Tuple[int, int]) -> Tuple[int, int]:
    """PyTorch's id of a pool. One that PyTorch has no id of has weir's number and the highest bit, so that it is no other
    one's."""
    name = (ctypes.c_uint64 * 2)(*ours)
    known = _library.adapters().weir_torch_mempool_name
    known.restype = ctypes.c_bool
    if known(device, name):
        return name[0], name[1]
    return ours[0] and ours[0] | 1 << 63, ours[1] and ours[1] | 1 << 63


def _has_live(device: int, pool: Tuple[int, int], expected: Set[int]) -> bool:
    """As torch._C._cuda_checkPoolLiveAllocations(): whether these pointers and no others are live in the pool."""
    live, count = (ctypes.c_void_p * len(expected))(), ctypes.c_size_t()
    _library.call_adapters("weir_torch_mempool_live", device, *map(ctypes.c_uint64, pool), live,
                           ctypes.c_size_t(len(expected)), ctypes.byref(count))
    return count.value == len(expected) and set(live) == expected


def _object_of(allocator: Any) -> int:
    """The address of the C++ object that a pybind11 object stands for: it follows the head of the Python object."""
    return ctypes.c_void_p.from_address(id(allocator) + object.__basicsize__).value or 0


def _source(allocator: Any) -> int:
    """The C++ object of a CUDAPluggableAllocator that does not end in weir, which stays alive from now on, even when the
    interpreter clears this module: graphs that end after it give segments back."""
    found = _object_of(allocator) if isinstance(allocator, _torch()._C._cuda_CUDAAllocator) else 0
    is_source = _library.adapters().weir_torch_is_source
    is_source.restype = ctypes.c_bool
    if any(allocator is own.allocator() for own in _own) or not is_source(ctypes.c_void_p(found)):
        raise Error(f"weir.torch: a torch.cuda.MemPool cannot have its memory from {allocator!r}; give it the allocator() "
                    "of a torch.cuda.memory.CUDAPluggableAllocator of your own (NVIDIA), or leave it out")
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(allocator))
    return found


class MemPool:
    """torch.cuda.MemPool, once install() is done: a private pool of weir's, for torch.cuda.use_mem_pool() and for
    torch.cuda.graph(pool=pool.id). Its memory goes back when the pool and the tensors in it are gone. With an allocator,
    the allocator() of a torch.cuda.memory.CUDAPluggableAllocator, weir gets the pool's segments from that."""

    def __init__(self, allocator: Any = None, use_on_oom: bool = False, no_split: bool = False) -> None:
        self.allocator = allocator
        source = _source(allocator) if allocator is not None else None
        self.device = _index(None)
        self.id: Tuple[int, int] = tuple(_torch().cuda.graph_pool_handle())  # PyTorch counts graphs' pools with these
        _library.call_adapters("weir_torch_mempool_hold", self.device, *map(ctypes.c_uint64, self.id),
                               ctypes.c_bool(use_on_oom), ctypes.c_bool(no_split), ctypes.c_void_p(source))

    def use_count(self) -> int:
        """The number of references: this one, and one for each use_mem_pool() and graph."""
        return _pool(self.device, self.id)[0]

    def snapshot(self, include_traces: bool = True) -> Any:
        """The pool's segments, as torch.cuda.memory_snapshot()."""
        return _snapshot((*self.id, include_traces))["segments"]

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise TypeError("weir.torch: a torch.cuda.MemPool cannot be copied or pickled")  # as PyTorch's: it is a reference

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the process ends, or there never was a pool
            _library.call_adapters("weir_torch_mempool_release", self.device, *map(ctypes.c_uint64, self.id))


class _Active(threading.local):
    pool: Optional[MemPool] = None


_active = _Active()


class MemPoolContext:
    """torch.cuda.MemPoolContext, which PyTorch has up to 2.7: says which pool is active in the thread. What is allocated
    from it says use_mem_pool() besides."""

    def __init__(self, pool: MemPool) -> None:
        self._before = _active.pool
        _active.pool = pool

    @staticmethod
    def active_pool() -> Optional[MemPool]:
        """The thread's."""
        return _active.pool

    def __del__(self) -> None:
        _active.pool = self._before


def _records() -> bool:
    """As torch._C._cuda_isHistoryEnabled()."""
    count = ctypes.c_size_t()
    try:
        _library.call("weir_history_read", _index(None), None, 0, ctypes.byref(count), None)
    except Error as error:
        if error.name != "WEIR_ERR_NOT_SUPPORTED":
            raise
        return False
    return True


def _record(enabled: Optional[str], context: Optional[str] = None, stacks: str = "all", max_entries: int = 0,
            clear_history: bool = False, *others: Any) -> None:
    """As torch._C._cuda_record_memory_history(). Stacks are of lines of Python only, whatever `stacks` says. PyTorch 2.15
    records pinned memory, too, which is its own, and so is told; it asks weir for the rest. The second of the others,
    whether annotations of the profiler's are recorded, would have it ask for what weir has not; the third has the events
    that are not wanted."""
    global _told
    for what, value, known in (("state", enabled, (None, "state", "all")),
                               ("context", context, (None, "state", "alloc", "all")),
                               ("stacks", stacks, ("python", "all"))):
        if value not in known:
            raise RuntimeError(f"expected {what} to be one of {', '.join(map(repr, known))}, but got {value!r}")
    if enabled == "state":  # PyTorch keeps the newest event alone then
        max_entries = 1
    _told = (context, tuple(others[2]) if len(others) > 2 else ())
    if _answers and len(others) >= 5:
        _replaced["_cuda_record_memory_history"](enabled, context, stacks, max_entries, clear_history, False, False,
                                                 *others[2:])
    else:
        _tell_history(enabled is not None, max_entries, context is not None, clear_history)


def _tell_history(enabled: bool, events: int, stacks: bool, clear: bool) -> None:
    _library.call_adapters("weir_torch_record_history", enabled, ctypes.c_uint64(events), stacks, clear)


def _record_legacy(enabled: bool, record_context: bool = True, *others: Any) -> None:
    """As torch._C._cuda_record_memory_history_legacy(), whose others are how many events to keep (in PyTorch 2.1 the
    second), whether allocations and frames of C++ have stacks, and whether to forget what there is; a list has the events
    that are not wanted."""
    global _told
    skipped = next((other for other in others if isinstance(other, (list, tuple))), ())
    _told = ("alloc" if others[1:2] == (True,) else "state", tuple(skipped))
    numbers = [other for other in others if not isinstance(other, bool)]
    stacks = record_context or any(other is True for other in others[1:3])
    events = numbers[0] if numbers and numbers[0] > 1 else 0  # 1 is what PyTorch has where none is named
    _tell_history(enabled, events, stacks, others[3:4] == (True,))


def _tell_profiler(torch: Any, adapters: Any) -> None:
    """Has the adapter look whether the profiler listens, from the first time on that somebody uses it."""
    profiler = torch.autograd.profiler
    enable = profiler._enable_profiler
    if torch.autograd._profiler_enabled():
        adapters.weir_torch_profile()

    def enable_profiler(*arguments: Any, **keywords: Any) -> Any:
        adapters.weir_torch_profile()
        return enable(*arguments, **keywords)

    profiler._enable_profiler = enable_profiler


_traced: Tuple[Any, ...] = ()  # what the adapter calls


def _tell_trace(torch: Any, adapters: Any) -> None:
    """Has the callbacks of torch.cuda._gpu_trace told of memory, from the moment on that PyTorch calls any, as its own
    allocator tells them. PyTorch's sanitizer of streams (TORCH_CUDA_SANITIZER) otherwise takes a tensor for the one that
    had its memory before on another stream."""
    activate = getattr(torch._C, "_activate_gpu_trace", None)
    if activate is None:
        return

    def activate_gpu_trace() -> None:
        global _traced
        registry = importlib.import_module("torch.cuda._gpu_trace")
        callback = ctypes.CFUNCTYPE(None, ctypes.c_size_t)
        _traced = tuple(callback(getattr(registry, f"Memory{what}Callbacks").fire_callbacks)
                        for what in ("Allocation", "Deallocation"))
        adapters.weir_torch_trace(*_traced)
        atexit.register(adapters.weir_torch_trace, None, None)
        activate()

    torch._C._activate_gpu_trace = activate_gpu_trace
    used = sys.modules.get("torch.cuda._gpu_trace")
    if used is not None and used.MemoryAllocationCallbacks.callback_list:  # with TORCH_CUDA_SANITIZER, since the import
        activate_gpu_trace()


def _replace(torch: Any, functions: Dict[str, Any]) -> None:
    """Of those that this PyTorch has."""
    for name, function in functions.items():
        if hasattr(torch._C, name):
            _replaced[name] = getattr(torch._C, name)
            setattr(torch._C, name, function)


def _version(torch: Any) -> Tuple[int, int]:
    """Of "2.13rc1" (2, 13)."""
    numbers = re.match(r"(\d+)\.(\d+)", torch.__version__)
    return (int(numbers[1]), int(numbers[2])) if numbers else (0, 0)


def _tell_statistics(torch: Any) -> None:
    """Replaces the functions under PyTorch's statistics, which only raise once the allocator is replaced."""
    reset_peaks, reset_totals = (partial(_reset, what) for what in ("peaks", "totals"))
    tells_of_pools = _version(torch) >= (2, 13)
    _replace(torch, {"_cuda_memoryStats": _nested_with_pools if tells_of_pools else _nested,
                     "_accelerator_getDeviceStats": _nested,
                     # weir stands there before CUDA is used, which statistics must not begin
                     "_accelerator_isAllocatorInitialized": torch.cuda.is_initialized,
                     "_cuda_resetPeakMemoryStats": reset_peaks, "_accelerator_resetPeakStats": reset_peaks,
                     "_cuda_resetAccumulatedMemoryStats": reset_totals,
                     "_accelerator_resetAccumulatedStats": reset_totals, "_cuda_record_memory_history": _record,
                     "_cuda_record_memory_history_legacy": _record_legacy, "_cuda_isHistoryEnabled": _records,
                     "_cuda_allocationTraceback": _traceback})
