"""weir as CuPy's allocator.

    import weir.cupy
    weir.cupy.install()

Arrays made from then on use weir's memory, on CuPy's current stream, as with CuPy's own pool. docs/python.md has the
rules.
"""
import contextlib
import ctypes
import functools
import gc
import threading
import weakref
from typing import Any, Callable, Dict, Tuple

from . import _lanes, _library, empty_cache, record_stream as _record
from ._library import Error

_streams: Dict[Tuple[int, int], Any] = {}  # CuPy's stream objects that weir knows: keeps the native streams alive
_captures: Dict[Tuple[int, int], _library.Graph] = {}  # that CuPy has begun and not ended
_threads = _lanes.Lanes()  # what stands for their per-thread default streams
_installed: Any = None  # what CuPy was given
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


def _keep(device: int, stream: Any) -> None:
    """Keeps CuPy's object for as long as weir knows the stream: the one that owns it rather than one that names it."""
    key = device, stream.ptr
    kept = _streams.get(key)
    if kept is not stream and (kept is None or type(kept).__name__ == "ExternalStream"):
        _streams[key] = stream


class Graph:
    """A graph of CuPy's, and the memory that was allocated in its capture: nobody else gets that while this lives."""

    def __init__(self, graph: Any, memory: _library.Graph) -> None:
        self._graph = graph
        weakref.finalize(self, _drop, memory).atexit = False

    def launch(self, stream: Any = None) -> None:
        """As CuPy's."""
        self._graph.launch(stream)

    def upload(self, stream: Any = None) -> None:
        """As CuPy's."""
        self._graph.upload(stream)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._graph, name)


def _drop(memory: _library.Graph) -> None:
    with contextlib.suppress(Error):  # it went with weir.close()
        _library.call("weir_graph_destroy", memory)


def _watch_captures(cupy: Any) -> None:
    """From now on what is allocated in captures that CuPy begins belongs to their graphs."""
    owner = next((of for of in cupy.cuda.Stream.__mro__ if "begin_capture" in vars(of)), None)
    if owner is None or hasattr(owner.begin_capture, "weirs"):
        return
    begin, end = owner.begin_capture, owner.end_capture
    get_device = cupy.cuda.runtime.getDevice

    def key_of(stream: Any) -> Tuple[int, int]:
        return _device_of(stream, get_device()), stream.ptr

    @functools.wraps(begin)
    def begin_capture(self: Any, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        memory, key = _library.Graph(), key_of(self)
        device, native = key
        _keep(device, self)
        try:
            _library.call_adapters("weir_cupy_adopt", ctypes.c_void_p(native), device, ctypes.byref(memory))
        except Error:
            with contextlib.suppress(Exception):
                end(self)
            raise
        _captures[key] = memory

    @functools.wraps(end)
    def end_capture(self: Any) -> Any:
        key = key_of(self)
        memory = _captures.pop(key, None)
        if memory is None:
            return end(self)
        try:
            graph = end(self)
        except BaseException:
            try:
                _library.call("weir_graph_end", memory)
            except Error:
                _captures[key] = memory  # it goes on: only the thread that began it may end it
            else:
                _drop(memory)
            raise
        _library.call("weir_graph_end", memory)
        return Graph(graph, memory)

    begin_capture.weirs = True  # type: ignore[attr-defined]
    owner.begin_capture, owner.end_capture = begin_capture, end_capture


def allocator() -> Callable[[int], Any]:
    """A function for cupy.cuda.set_allocator() and cupy.cuda.using_allocator(). Calls are ordered with CuPy's current
    stream of the calling thread, at the time of the call."""
    cupy = _cupy()
    _watch_captures(cupy)
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

    def of_current_stream() -> Any:
        stream = get_stream()
        if stream.ptr == _lanes.STREAM_PER_THREAD:
            return _threads.of_thread(cupy, get_device()).allocator
        if stream.ptr:
            _keep(get_device(), stream)
        of_stream = functions.get(stream.ptr)
        if of_stream is None:
            made = cupy.cuda.memory.CFunctionAllocator(stream.ptr, malloc.value, free.value, None)
            of_stream = functions.setdefault(stream.ptr, made)
        return of_stream

    def allocate(size: int) -> Any:
        of_stream = of_current_stream()
        pointer = of_stream.malloc(size)
        if size > 0 and pointer.ptr == 0 and isinstance(_library.thread_error(), _library.OutOfMemoryError):
            gc.collect()  # as CuPy's pool does: arrays in cycles of references may have memory
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
        if not installed():
            ours = _installed or allocator()
            _cupy().cuda.set_allocator(ours)
            _installed = ours


def installed() -> bool:
    """Whether install() has been done, and CuPy was given no other allocator since."""
    return _installed is not None and _cupy().cuda.get_allocator() is _installed


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
    the array's device. Of the per-thread default stream it is the calling thread's, and the work that is queued there
    now."""
    if array.size == 0:  # the array has no memory
        return
    device = _device_of(stream, array.data.device_id)
    if stream.ptr == _lanes.STREAM_PER_THREAD:
        cupy = _cupy()
        with _lanes.on_device(cupy.cuda.runtime, device):
            lane = _threads.of_thread(cupy, device)
            lane.wait()
        _library.call("weir_record_stream", array.data.ptr, lane.stream)
        return
    if stream.ptr:
        _keep(device, stream)  # first, since weir knows the stream even if the array is none of its own
    _record(array.data.ptr, stream.ptr, device)


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
