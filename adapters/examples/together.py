"""PyTorch, CuPy and weir's own API in one process with one cache: what one frees, the next gets. Needs a GPU and CuPy.

    WEIR_LIBRARY=.../lib PYTHONPATH=.../adapters/python python3 together.py
"""
import cupy
import torch
import weir
import weir.cupy
import weir.torch

weir.torch.install()  # before PyTorch uses CUDA
weir.cupy.install()   # any time

x = torch.ones(64 << 20, dtype=torch.uint8, device="cuda")
address = x.data_ptr()
del x
y = cupy.full(64 << 20, 2, dtype=cupy.uint8)  # on the default stream, as PyTorch was: no synchronisation is needed
print("the same memory" if y.data.ptr == address else "other memory")

# Another stream must wait for the one that the memory was made on, and must be recorded as a user of it.
side = cupy.cuda.Stream(non_blocking=True)
ready = cupy.cuda.Event()
ready.record()
side.wait_event(ready)
with side:
    total = y.sum(dtype=cupy.int64)  # total is made on side, and is freed there
weir.cupy.record_stream(y, side)
del y
side.synchronize()
print(int(total), weir.stats(0)["reserved_bytes"]["all"])
