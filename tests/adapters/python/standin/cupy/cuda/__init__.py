"""Stand-in: see cupy/__init__.py."""
import ctypes
import threading

from . import memory
from .runtime import STREAM_PER_THREAD, runtime

driver = None  # a stand-in for libcuda, from a test that captures
_current = threading.local()
_allocator = None


def check(code):
    if code != 0:
        raise RuntimeError(f"error {code} of the driver")


class Graph:
    __slots__ = ("native", "launched_on")  # as little can be done with CuPy's own

    def launch(self, stream=None):
        self.launched_on = stream

    def debug_dot_str(self):
        return "digraph"


class _BaseStream:
    def __init__(self, ptr, device_id=-1):
        self.ptr, self.device_id = ptr, device_id

    def use(self):
        _current.stream = self
        return self

    def begin_capture(self, mode=None):
        relaxed = 2
        check(driver.cuStreamBeginCapture_v2(ctypes.c_void_p(self.ptr), relaxed if mode is None else mode))

    def end_capture(self):
        graph, native = Graph(), ctypes.c_void_p()
        check(driver.cuStreamEndCapture(ctypes.c_void_p(self.ptr), ctypes.byref(native)))
        graph.native = native.value
        return graph


class Stream(_BaseStream):
    pass


class ExternalStream(_BaseStream):
    pass


Stream.null, Stream.ptds = Stream(0), Stream(STREAM_PER_THREAD)


class Event:
    def __init__(self, disable_timing=False):
        self.ptr = id(self)


def get_current_stream():
    return getattr(_current, "stream", Stream.null)


def get_allocator():
    return _allocator


def set_allocator(allocator):
    global _allocator
    _allocator = allocator


def alloc(size):
    return _allocator(size)
