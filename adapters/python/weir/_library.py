"""libweir through ctypes: where it is, its types, its errors."""
import atexit
import contextlib
import ctypes
import operator
import os
import pathlib
from typing import Any, List, Optional, Tuple

_NAMES = ("libweir.so.0", "libweir.so")
_ADAPTERS = "libweir_adapters.so"
_OUT_OF_MEMORY = (-2, -3)  # of the device, of the host


class Error(RuntimeError):
    """A weir call failed. The text says what went wrong, and what to do about it."""

    def __init__(self, text: str, status: int = 0, name: str = "") -> None:
        super().__init__(text)
        self.status = status
        self.name = name


class OutOfMemoryError(Error, MemoryError):
    """No memory is left for the request. The text says where all memory is and what would have helped."""


class Stat(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in ("current", "peak", "added", "removed")]


QUANTITIES = ("allocation", "allocated_bytes", "active", "active_bytes", "requested_bytes", "segment", "reserved_bytes",
              "inactive_split", "inactive_split_bytes")
KINDS = ("all", "small", "large")
COUNTERS = ("hits", "driver_allocs", "driver_frees", "alloc_retries", "ooms", "syncs", "pending_frees", "rehomed",
            "collected", "lent", "paused_bytes", "stream_misuses", "plan_served",
            "plan_late", "plan_missed", "plan_resyncs", "plan_missed_bytes")


class MemoryStats(ctypes.Structure):
    """weir_memory_stats."""
    _fields_ = [("size", ctypes.c_size_t), *[(name, Stat * len(KINDS)) for name in QUANTITIES],
                *[(name, ctypes.c_uint64) for name in COUNTERS]]


class Settings(ctypes.Structure):
    """weir_settings."""
    _fields_ = [("size", ctypes.c_size_t), ("backend", ctypes.c_char_p), ("policy", ctypes.c_char_p),
                ("memory_limit", ctypes.c_uint64), ("host_devices", ctypes.c_uint64), ("host_memory", ctypes.c_uint64),
                ("max_split_size", ctypes.c_uint64), ("large_segment", ctypes.c_uint64),
                ("roundup_power2_divisions", ctypes.c_char_p), ("gc_threshold", ctypes.c_double),
                ("history", ctypes.c_uint64), ("log", ctypes.c_char_p), ("debug", ctypes.c_char_p),
                ("history_stacks", ctypes.c_uint64), ("history_stacks_kept", ctypes.c_uint64),
                ("plan", ctypes.c_char_p), ("plan_share", ctypes.c_uint64),
                ("max_non_split_rounding", ctypes.c_uint64)]


ALL_DEVICES = -3  # WEIR_DEVICE_ALL


class SnapshotOptions(ctypes.Structure):
    """weir_snapshot_options."""
    _fields_ = [("size", ctypes.c_size_t), ("format", ctypes.c_int), ("device", ctypes.c_int32),
                ("pool", ctypes.c_void_p), ("without_history", ctypes.c_bool)]


class LastError(ctypes.Structure):
    """weir_error."""
    _fields_ = [("size", ctypes.c_size_t), ("status", ctypes.c_int), ("native_code", ctypes.c_int64),
                ("library", ctypes.c_char * 32), ("text", ctypes.c_char * 1024)]


MOST_EVENTS = 1_000_000_000  # that a device can keep
MOST_FRAMES = 64  # of a call stack


def whole(name: str, value: Any, least: int, most: int) -> int:
    """The value, checked, because ctypes would silently truncate it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"weir: {name} must be a whole number, not {value!r}") from None
    if not least <= number <= most:
        raise ValueError(f"weir: {name} must be from {least} to {most}, not {number}")
    return number


def text(name: str, value: Any) -> bytes:
    """The text or path, checked, because ctypes would silently cut it at a zero byte."""
    encoded = os.fsencode(value)
    if b"\0" in encoded:
        raise ValueError(f"weir: {name} cannot have a zero byte: {value!r}")
    return encoded


def device(value: Any) -> int:
    """A device's number; -1: the current one."""
    return whole("device", value, -1, 2 ** 31 - 1)


class Stream(ctypes.Structure):
    """weir_stream."""
    _fields_ = [("id", ctypes.c_uint64)]


class Mempool(ctypes.Structure):
    """weir_mempool."""
    _fields_ = [("capture", ctypes.c_uint64), ("user", ctypes.c_uint64)]


class Graph(ctypes.Structure):
    """weir_graph."""
    _fields_ = [("id", ctypes.c_uint64)]


_FUNCTIONS = {
    "weir_backend_name": [ctypes.POINTER(ctypes.c_char_p)],
    "weir_close": [],
    "weir_empty_cache": [ctypes.c_int],
    "weir_graph_destroy": [Graph],
    "weir_graph_end": [Graph],
    "weir_history_label_pop": [],
    "weir_history_label_push": [ctypes.c_char_p],
    "weir_history_read": [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_size_t),
                          ctypes.POINTER(ctypes.c_uint64)],
    "weir_history_save": [ctypes.c_char_p],
    "weir_history_start": [ctypes.c_uint64, ctypes.c_uint32],
    "weir_history_stop": [],
    "weir_last_error": [ctypes.POINTER(LastError)],
    "weir_memory_limit_get": [ctypes.c_int, ctypes.POINTER(ctypes.c_uint64)],
    "weir_memory_limit_set": [ctypes.c_int, ctypes.c_uint64],
    "weir_mempool_stats_get": [Mempool, ctypes.POINTER(MemoryStats)],
    "weir_open": [ctypes.POINTER(Settings)],
    "weir_record_stream": [ctypes.c_void_p, Stream],
    "weir_snapshot_write": [ctypes.c_int, ctypes.POINTER(SnapshotOptions)],
    "weir_stats_get": [ctypes.c_int, ctypes.POINTER(MemoryStats)],
    "weir_stats_reset": [ctypes.c_int],
    "weir_stats_reset_peaks": [ctypes.c_int],
    "weir_stats_reset_totals": [ctypes.c_int],
    "weir_stream_create": [ctypes.c_int, ctypes.c_int, ctypes.POINTER(Stream)],
    "weir_stream_destroy": [Stream],
    "weir_stream_from_native": [ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(Stream)],
    "weir_stream_native": [Stream, ctypes.POINTER(ctypes.c_void_p)],
    "weir_stream_queued": [Stream, ctypes.POINTER(ctypes.c_uint64)],
}

_loaded: Optional[Tuple[ctypes.CDLL, str]] = None
_adapters: Optional[ctypes.CDLL] = None


def _candidates() -> List[str]:
    """WEIR_LIBRARY alone if it is set, else the library beside this package, else what the loader finds."""
    chosen = os.environ.get("WEIR_LIBRARY")
    if chosen:
        path = pathlib.Path(os.path.abspath(chosen))  # the loader would look for "libweir.so.0" elsewhere
        if path.is_dir():
            return [str(path / name) for name in _NAMES]
        return [str(path) if path.exists() else chosen]
    package = pathlib.Path(__file__).resolve().parent
    beside = [folder / name for folder in (package, package / "lib", package.parent) for name in _NAMES]
    return [str(path) for path in beside if path.exists()] + list(_NAMES)


def _load() -> Tuple[ctypes.CDLL, str]:
    """The library, and the name or path under which it was found."""
    global _loaded
    if _loaded is None:
        failures = []
        for candidate in _candidates():
            try:
                library = ctypes.CDLL(candidate)
            except OSError as error:
                failures.append(str(error))
                continue
            try:
                for name, arguments in _FUNCTIONS.items():
                    getattr(library, name).argtypes = arguments
            except AttributeError as error:
                failures.append(f"{error} (not libweir, or an older one than this package)")
                continue
            library.weir_error_text.restype = library.weir_status_name.restype = ctypes.c_char_p
            library.weir_status_text.restype = library.weir_version.restype = ctypes.c_char_p
            _loaded = library, candidate
            return _loaded
        raise Error("libweir was not found; set WEIR_LIBRARY to the file or its folder; tried: "
                    + "; ".join(failures))
    return _loaded


def library() -> ctypes.CDLL:
    """libweir, loaded when first used."""
    return _load()[0]


def adapters_path() -> str:
    """libweir_adapters.so, beside the libweir in use: two copies of libweir would be two caches."""
    name = _load()[1]
    folder = os.path.dirname(name)
    return os.path.join(folder, _ADAPTERS) if folder else _ADAPTERS


def adapters() -> ctypes.CDLL:
    """libweir_adapters.so: what PyTorch and CuPy call."""
    global _adapters
    if _adapters is None:
        path = adapters_path()
        try:
            _adapters = ctypes.CDLL(path)
        except OSError as error:
            raise Error(f"{path} cannot be loaded; it is beside libweir if that was built with a C++ compiler: "
                        f"{error}") from error
        _adapters.weir_python_stacks()  # where it cannot, stacks are of the interpreter's functions
        atexit.register(_adapters.weir_python_stacks_end)
    return _adapters


def stats(device: int) -> MemoryStats:
    """The device's weir_memory_stats."""
    numbers = MemoryStats(ctypes.sizeof(MemoryStats))
    call("weir_stats_get", device, ctypes.byref(numbers))
    return numbers


def name_lines() -> None:
    """From now on recorded call stacks are of lines of Python, if the adapters are there."""
    with contextlib.suppress(Error):
        adapters()


def close() -> None:
    """Closes libweir, once other processes get no answers any more."""
    if _adapters is not None:
        _adapters.weir_handover_end()
    call("weir_close")


def _thread_status() -> int:
    """That of the last failed call in this thread."""
    error = LastError(ctypes.sizeof(LastError))
    library().weir_last_error(ctypes.byref(error))
    return error.status


def last_error(status: int) -> Error:
    """The exception for a status that a call in this thread has just returned. The thread's error text may be that of
    an earlier call: what is in the adapters may fail where nothing of libweir's does."""
    weir = library()
    text = weir.weir_error_text() if status == _thread_status() else b""
    text = text or weir.weir_status_text(status)
    kind = OutOfMemoryError if status in _OUT_OF_MEMORY else Error
    return kind(text.decode(errors="replace"), status, weir.weir_status_name(status).decode())


def thread_error() -> Error:
    """The exception for the last failed call in this thread, when its status is not known."""
    return last_error(_thread_status())


def _check(status: int) -> None:
    if status != 0:
        raise last_error(status)


def call(name: str, *arguments: Any) -> None:
    """Calls libweir; raises if it fails."""
    _check(getattr(library(), name)(*arguments))


def call_adapters(name: str, *arguments: Any) -> None:
    """Calls libweir_adapters; raises if it fails."""
    _check(getattr(adapters(), name)(*arguments))


def stream_of(device: int, native: int) -> Stream:
    """weir's name for a native stream."""
    stream, handle = Stream(), whole("stream", native or 0, 0, 2 ** 64 - 1)
    call("weir_stream_from_native", device, handle or None, ctypes.byref(stream))
    return stream
