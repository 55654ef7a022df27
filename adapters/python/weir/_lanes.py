"""Memory for CuPy's per-thread default streams.

One handle, streamPerThread, names another stream in each thread, so weir cannot know these by name. A thread has a lane
instead: a stream of weir's that carries no work of the program. Memory comes from the lane, whose later work waits for
the thread's at each free; and the thread's later work waits for the lane where weir has queued anything there.

Only the thread itself can record its stream: what another thread frees becomes free when its own next allocates or
frees. A thread that ends leaves its lane, ordered behind its work, to the next one.

A finalizer may free or allocate between any two lines here: so there are no locks, and an event is used in one direction
only, where one that was recorded once more covers more.
"""
import collections
import contextlib
import ctypes
import sys
import threading
from typing import Any, Deque, Dict, Iterator, Optional

from . import _library
from ._library import Error

STREAM_PER_THREAD = 2  # cudaStreamPerThread

Malloc = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
Free = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)


@contextlib.contextmanager
def on_device(runtime: Any, device: int) -> Iterator[None]:
    before = runtime.getDevice()
    if before != device:
        runtime.setDevice(device)
    try:
        yield
    finally:
        if before != device:
            runtime.setDevice(before)


class Lane:
    """To be made and used with its device current, by `owner`; free() may be called at any time in any thread."""

    def __init__(self, cupy: Any, device: int) -> None:
        self.device, self.stream = device, _library.Stream()
        self.owner: Optional[int] = None  # the thread; None: none has it, and it is behind all work of those that had it
        self._runtime = cupy.cuda.runtime
        self._returned: Deque[int] = collections.deque()  # what could not be freed where it was
        self._followed: Optional[int] = None  # weir_stream_queued() when the owner last waited for the lane
        native = ctypes.c_void_p()
        self._to_thread, self._from_thread = (cupy.cuda.Event(disable_timing=True) for _ in range(2))
        _library.call("weir_stream_create", device, 0, ctypes.byref(self.stream))
        _library.call("weir_stream_native", self.stream, ctypes.byref(native))
        self._native = native.value
        adapters = _library.adapters()
        self._malloc = Malloc(ctypes.cast(adapters.weir_cupy_malloc, ctypes.c_void_p).value)
        self._free = Free(ctypes.cast(adapters.weir_cupy_free, ctypes.c_void_p).value)
        self.allocator = cupy.cuda.memory.PythonFunctionAllocator(self.allocate, self.free)

    def _queued(self) -> Optional[int]:
        """None: the lane went with weir.close()."""
        count = ctypes.c_uint64()
        status = _library.library().weir_stream_queued(self.stream, ctypes.byref(count))
        return count.value if status == 0 else None

    def lives(self) -> bool:
        return self._queued() is not None

    def take(self) -> None:
        """The calling thread has it now."""
        self._followed = None
        self.owner = threading.get_ident()

    def _refuse_captured(self) -> None:
        if self._runtime.streamIsCapturing(STREAM_PER_THREAD):
            raise Error("weir.cupy: the per-thread default stream is being captured, and a graph needs memory of its own; "
                        "capture another stream")

    def wait(self) -> None:
        """Later work on the lane waits for what its owner, which calls, has queued."""
        self._refuse_captured()
        self._runtime.eventRecord(self._from_thread.ptr, STREAM_PER_THREAD)
        self._runtime.streamWaitEvent(self._native, self._from_thread.ptr)

    def allocate(self, size: int, device: int) -> int:
        """0: weir has no memory for it."""
        self._refuse_captured()
        self.settle()
        pointer = self._malloc(self._native, size, device)
        if not pointer:
            return 0
        queued = self._queued()
        if queued != self._followed:
            try:
                self._runtime.eventRecord(self._to_thread.ptr, self._native)
                self._runtime.streamWaitEvent(STREAM_PER_THREAD, self._to_thread.ptr)
            except BaseException:
                self._free(None, pointer, device)
                raise
            self._followed = queued
        return pointer

    def free(self, pointer: int, device: int) -> None:
        self._returned.append(pointer)
        if self.owner in (None, threading.get_ident()):
            with contextlib.suppress(Exception), on_device(self._runtime, self.device):  # else the next one frees it
                self.settle()

    def settle(self) -> None:
        """Frees what was returned. By the owner, if there is one."""
        if not self._returned:
            return
        if self.owner is not None and self.lives():
            self.wait()
        with contextlib.suppress(IndexError):
            while True:
                self._free(None, self._returned.popleft(), self.device)

    def leave(self) -> None:
        """Its owner ends, and calls."""
        with on_device(self._runtime, self.device):
            self.wait()
        self.owner = None
        self.settle()


class Lanes:
    """Those of all threads."""

    def __init__(self) -> None:
        self._idle: Dict[int, Deque[Lane]] = collections.defaultdict(collections.deque)
        self._threads = threading.local()

    def of_thread(self, cupy: Any, device: int) -> Lane:
        """The calling thread's lane of the device, which is current."""
        mine: _Mine = getattr(self._threads, "mine", None) or _Mine(self._idle)
        self._threads.mine = mine
        found = mine.lanes.get(device)
        if found is None or not found.lives():
            found = mine.lanes[device] = self._idle_one(device) or Lane(cupy, device)
            found.take()
        return found

    def _idle_one(self, device: int) -> Optional[Lane]:
        with contextlib.suppress(IndexError):
            while True:
                lane = self._idle[device].popleft()
                if lane.lives():
                    return lane
        return None


class _Mine:
    """A thread's lanes by device, for as long as it lives."""

    def __init__(self, idle: Dict[int, Deque[Lane]]) -> None:
        self.lanes: Dict[int, Lane] = {}
        self._idle = idle

    def __del__(self) -> None:
        if sys.is_finalizing():
            return
        for device, lane in self.lanes.items():
            with contextlib.suppress(Exception):  # the device, or the library, has gone
                if lane.lives():
                    lane.leave()
                    self._idle[device].append(lane)
