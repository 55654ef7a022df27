"""weir as CuPy's allocator.

    import weir.cupy
    weir.cupy.install()

Arrays made from then on use weir's memory, on CuPy's current stream, as with CuPy's own pool. docs/python.md has the
rules.
"""
import ctypes
import threading
from typing import Any, Callable, Dict, Tuple

from . import _library, empty_cache, record_stream as _record
from ._library import Error

_streams: Dict[Tuple[int, int], Any] = {}  # CuPy's stream objects that weir knows: keeps the native streams alive
_installed: bool = False
_lock = threading.Lock()


def _cupy() -> Any:
    try:
        import cupy
    except ImportError as error:
        raise Error(f"weir.cupy: CuPy cannot be imported: {error}") from error
    return cupy


def _out_of_memory(cupy: Any) -> type:
    """A subclass of both weir's and CuPy's exception, so that either can be caught."""

    class CupyOutOfMemoryError(_library.OutOfMemoryError, cupy.cuda.memory.OutOfMemoryError):  # type: ignore[misc]
        def __init__(self, error: _library.Error) -> None:
            _library.OutOfMemoryError.__init__(self, str(error), error.status, error.name)

        def __reduce__(self) -> Any:
            return _library.OutOfMemoryError, (str(self), self.status, self.name)

    CupyOutOfMemoryError.__name__ = CupyOutOfMemoryError.__qualname__ = "OutOfMemoryError"
    return CupyOutOfMemoryError


def allocator() -> Callable[[int], Any]:
    """A function for cupy.cuda.set_allocator() and cupy.cuda.using_allocator(). Calls are ordered with CuPy's current
    stream of the calling thread, at the time of the call."""
    cupy = _cupy()
    adapters = _library.adapters()
    malloc, free, save, restore = (
        ctypes.cast(function, ctypes.c_void_p)
        for function in (adapters.weir_cupy_malloc, adapters.weir_cupy_free, ctypes.pythonapi.PyEval_SaveThread,
                         ctypes.pythonapi.PyEval_RestoreThread))
    adapters.weir_cupy_use_interpreter(save, restore)
    # By stream, as it is all that CuPy passes on: a finalizer may run between two calls, and allocate on another one.
    functions: Dict[int, Any] = {}
    out_of_memory = _out_of_memory(cupy)
    get_stream = cupy.cuda.get_current_stream
    get_device = cupy.cuda.runtime.getDevice

    def allocate(size: int) -> Any:
        stream = get_stream()
        if stream.ptr:
            _streams.setdefault((get_device(), stream.ptr), stream)
        of_stream = functions.get(stream.ptr)
        if of_stream is None:
            made = cupy.cuda.memory.CFunctionAllocator(stream.ptr, malloc.value, free.value, None)
            of_stream = functions.setdefault(stream.ptr, made)
        pointer = of_stream.malloc(size)
        if size > 0 and pointer.ptr == 0:
            error = _library.thread_error()
            raise out_of_memory(error) if isinstance(error, _library.OutOfMemoryError) else error
        return pointer

    return allocate


def install() -> None:
    """Makes weir CuPy's allocator, in all threads. May be called at any time: existing arrays keep their memory, and
    CuPy's own pool keeps what it has cached (cupy.get_default_memory_pool().free_all_blocks() gives that back)."""
    global _installed
    with _lock:
        if not _installed:
            _cupy().cuda.set_allocator(allocator())
            _installed = True


def installed() -> bool:
    """Whether install() has been done."""
    return _installed


def _device_of(stream: Any, otherwise: int) -> int:
    """What CuPy says, unless that is -1 (for default streams, and sometimes for external ones); else what weir
    knows."""
    device: int = getattr(stream, "device_id", -1)
    if device >= 0:
        return device
    return next((known for known, native in list(_streams) if native == stream.ptr), otherwise)


def record_stream(array: Any, stream: Any) -> None:
    """Records that work on a stream uses the array too: once the array is gone, its memory is not reused before that
    work is over. Not needed for the stream that was current when the array was made. A default stream means that of
    the array's device."""
    if array.size == 0:  # the array has no memory
        return
    device = _device_of(stream, array.data.device_id)
    _record(array.data.ptr, stream.ptr, device)
    if stream.ptr:
        _streams.setdefault((device, stream.ptr), stream)


def release_stream(stream: Any) -> None:
    """Releases a stream on which weir.cupy has allocated, or which it has recorded: waits for its work, after which
    CuPy may destroy it. A program that makes few streams need not release them."""
    key = (_device_of(stream, -1), stream.ptr)
    kept = _streams.pop(key, None)
    if kept is None:
        return
    try:
        _library.call("weir_stream_destroy", _library.stream_of(*key))
    except _library.Error:
        _streams.setdefault(key, kept)
        raise


def free_all_blocks() -> None:
    """As in CuPy's memory pools: gives memory that nothing uses on the current device back to the driver."""
    empty_cache(_cupy().cuda.runtime.getDevice())
