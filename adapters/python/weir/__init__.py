"""weir: one cache of GPU memory for a whole process: PyTorch (weir.torch), CuPy (weir.cupy), and code in C.

Nothing is loaded before it is needed, and nothing touches a GPU before memory is asked for. Settings come from the
environment (WEIR_POLICY, WEIR_MEMORY_LIMIT, ...) unless open() is called first.
"""
import ctypes
import os
from typing import Any, Dict, Union

from . import _library
from ._library import Error, OutOfMemoryError

__all__ = ["Error", "OutOfMemoryError", "backend", "close", "empty_cache", "history_start", "history_stop", "open",
           "record_stream", "reset_stats", "set_memory_limit", "snapshot", "stats", "version"]

_CURRENT_DEVICE = -1


def version() -> str:
    """The version of the library in use."""
    return str(_library.library().weir_version().decode())


def _setting(name: str, value: Any) -> Any:
    """The value converted to the type of its member of weir_settings."""
    kind = dict(_library.Settings._fields_)[name]
    if kind is ctypes.c_uint64:
        return _library.whole(name, value, 0, 2 ** 64 - 1)
    if kind is ctypes.c_double:
        try:
            return float(value)
        except (TypeError, ValueError, OverflowError):
            raise TypeError(f"weir: {name} must be a number, not {value!r}") from None
    if not isinstance(value, str):
        raise TypeError(f"weir: {name} must be a string, not {value!r}")
    return _library.text(name, value)


def open(**settings: Any) -> None:  # noqa: A001 - as in C
    """Opens the library with other settings than the environment's: the members of weir_settings (policy="torch",
    memory_limit=..., history=...). A variable of the environment beats the setting. Must come before anything else."""
    known = {field[0] for field in _library.Settings._fields_} - {"size"}
    unknown = sorted(set(settings) - known)
    if unknown:
        raise TypeError(f"weir.open() has no setting {unknown[0]!r}; the settings are {', '.join(sorted(known))}")
    values = {name: _setting(name, value) for name, value in settings.items()}
    if values.get("history_stacks") or values.get("debug"):
        _library.name_lines()
    _library.call("weir_open", ctypes.byref(_library.Settings(ctypes.sizeof(_library.Settings), **values)))


def close() -> None:
    """Gives all memory back, even blocks in use. Only for programs that know that none is."""
    _library.close()


def backend() -> str:
    """"cuda", "hip" or "host"."""
    name = ctypes.c_char_p()
    _library.call("weir_backend_name", ctypes.byref(name))
    return str((name.value or b"").decode())


def stats(device: int = _CURRENT_DEVICE) -> Dict[str, Any]:
    """The members of weir_memory_stats: quantities as {"all", "small", "large"} of {"current", "peak", "added",
    "removed"}, counters as numbers. They cover all users of the device in the process."""
    raw = _library.stats(_library.device(device))
    result: Dict[str, Any] = {}
    for quantity in _library.QUANTITIES:
        result[quantity] = {kind: {field: getattr(stat, field) for field, _ in stat._fields_}
                            for kind, stat in zip(_library.KINDS, getattr(raw, quantity))}
    for counter in _library.COUNTERS:
        result[counter] = getattr(raw, counter)
    return result


def reset_stats(device: int = _CURRENT_DEVICE) -> None:
    """Sets peaks to the current values, and running totals and counters to zero."""
    _library.call("weir_stats_reset", _library.device(device))


def history_start(events: int, frames: int = 0) -> None:
    """Records events from now on, this many on each device, and with each so many frames of the call stack: lines of
    Python, where the thread runs some. From the first allocation on: WEIR_HISTORY=1000000 and WEIR_HISTORY_STACKS=32, or
    weir.open(history=1000000, history_stacks=32)."""
    kept = _library.whole("events", events, 1, _library.MOST_EVENTS)
    deep = _library.whole("frames", frames, 0, _library.MOST_FRAMES)
    if deep:
        _library.name_lines()
    _library.call("weir_history_start", kept, deep)


def history_stop() -> None:
    """Records nothing from now on, and forgets what was recorded."""
    _library.call("weir_history_stop")


def snapshot(path: Union[str, "os.PathLike[str]"]) -> None:
    """Writes the recorded events of all devices as a trace for the weir command (weir replay, weir check)."""
    _library.call("weir_history_save", _library.text("a path", path))


def empty_cache(device: int = _CURRENT_DEVICE) -> None:
    """Gives memory that nothing uses back to the driver."""
    _library.call("weir_empty_cache", _library.device(device))


def set_memory_limit(bytes: int, device: int = _CURRENT_DEVICE) -> None:  # noqa: A002 - as in C
    """Caps what weir may take on a device; 0 removes the cap."""
    _library.call("weir_memory_limit_set", _library.device(device), _library.whole("bytes", bytes, 0, 2 ** 64 - 1))


def record_stream(pointer: int, stream: int, device: int = _CURRENT_DEVICE) -> None:
    """Records that work on a native stream of the device uses the block that pointer points into: once freed, the
    block is not reused before that work is over. With PyTorch use tensor.record_stream(), with CuPy
    weir.cupy.record_stream()."""
    address = _library.whole("pointer", pointer, 0, 2 ** 64 - 1)
    _library.call("weir_record_stream", address, _library.stream_of(_library.device(device), stream))
