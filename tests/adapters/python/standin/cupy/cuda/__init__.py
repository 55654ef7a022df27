"""Stand-in: see cupy/__init__.py."""
import threading
import types

from . import memory

runtime = types.SimpleNamespace(getDevice=lambda: 0)
_current = threading.local()
_allocator = None


class Stream:
    def __init__(self, ptr, device_id=-1):
        self.ptr, self.device_id = ptr, device_id

    def use(self):
        _current.stream = self
        return self


Stream.null = Stream(0)


def get_current_stream():
    return getattr(_current, "stream", Stream.null)


def set_allocator(allocator):
    global _allocator
    _allocator = allocator


def alloc(size):
    return _allocator(size)
