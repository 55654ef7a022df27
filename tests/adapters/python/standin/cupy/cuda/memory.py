"""Stand-in: see cupy/__init__.py."""
import ctypes

from .runtime import runtime


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        super().__init__(f"Out of memory allocating {size:,} bytes")


class CFunctionAllocatorMemory:
    """CuPy calls both functions with the interpreter's lock held."""

    def __init__(self, size, param, malloc, free, device_id):
        self._param, self._free, self.device_id, self.size = param, free, device_id, size
        function = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)(malloc)
        self.ptr = function(param, size, device_id) or 0 if size > 0 else 0

    def __del__(self):
        if self.ptr:
            ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int)(self._free)(
                self._param, self.ptr, self.device_id)


class PythonFunctionAllocatorMemory:
    def __init__(self, size, malloc, free, device_id):
        self._free, self.device_id, self.size, self.ptr = free, device_id, size, 0
        if size > 0:
            self.ptr = malloc(size, device_id)

    def __del__(self):
        if self.ptr:
            self._free(self.ptr, self.device_id)


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id


class CFunctionAllocator:
    def __init__(self, param, malloc_func, free_func, owner):
        self._arguments = param, malloc_func, free_func

    def malloc(self, size):
        return MemoryPointer(CFunctionAllocatorMemory(size, *self._arguments, 0), 0)


class PythonFunctionAllocator:
    def __init__(self, malloc_func, free_func):
        self._arguments = malloc_func, free_func

    def malloc(self, size):
        return MemoryPointer(PythonFunctionAllocatorMemory(size, *self._arguments, runtime.getDevice()), 0)
