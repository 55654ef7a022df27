"""A stand-in for PyTorch with CUDA: as much of it as weir.torch touches, over the host back end. It calls the hooks that
take C types as PyTorch does; the others are covered by tests/adapters/test_torch_*.c."""
import types

__version__ = "2.11.0+standin"
version = types.SimpleNamespace(cuda="13.0", hip=None)


def _refuse(*_):
    raise RuntimeError("pluggable does not yet support getDeviceStats")


_C = types.SimpleNamespace(_cuda_memoryStats=_refuse, _cuda_resetPeakMemoryStats=_refuse,
                           _cuda_resetAccumulatedMemoryStats=_refuse, _cuda_memorySnapshot=_refuse,
                           _cuda_record_memory_history=_refuse, _cuda_isHistoryEnabled=_refuse,
                           _cuda_record_memory_history_legacy=_refuse, _cuda_allocationTraceback=_refuse,
                           _cuda_checkPoolLiveAllocations=_refuse,
                           _accelerator_getDeviceStats=_refuse, _accelerator_resetPeakStats=_refuse,
                           _accelerator_resetAccumulatedStats=_refuse)

autograd = types.SimpleNamespace(_profiler_enabled=lambda: False, profiler=types.SimpleNamespace(_enable_profiler=lambda config, activities: (config, activities)))

from . import cuda  # noqa: E402,F401
