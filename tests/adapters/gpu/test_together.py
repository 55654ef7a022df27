"""PyTorch, CuPy and code in C with one cache in one process, on a GPU. Run by scripts/clients, a process per file."""
import ctypes
import gc
import queue
import threading
import unittest

import torch
import weir.torch

try:
    import cupy
except ImportError:
    cupy = None

MIB = 1 << 20


def setUpModule():
    if not torch.cuda.device_count():
        raise unittest.SkipTest("there is no GPU")
    weir.torch.install()
    if cupy is not None:
        from weir import cupy as weir_cupy
        weir_cupy.install()


def in_use():
    gc.collect()
    return weir.stats(0)["allocated_bytes"]["all"]["current"]


def weir_alloc(size, stream):
    """Calls as code in C does."""
    pointer = ctypes.c_void_p()
    library = weir._library.library()
    library.weir_alloc_on.argtypes = [ctypes.c_size_t, weir._library.Stream, ctypes.POINTER(ctypes.c_void_p)]
    library.weir_free.argtypes = [ctypes.c_void_p]
    weir._library.call("weir_alloc_on", size, weir._library.stream_of(0, stream), ctypes.byref(pointer))
    return pointer.value


class Together(unittest.TestCase):
    def test_what_torch_has_freed_serves_code_in_c(self):
        stream = torch.cuda.current_stream().cuda_stream
        x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        address = x.data_ptr()
        reserved = weir.stats(0)["reserved_bytes"]["all"]["current"]
        del x
        pointer = weir_alloc(64 * MIB, stream)
        self.assertEqual(pointer, address)
        self.assertEqual(weir.stats(0)["reserved_bytes"]["all"]["current"], reserved)
        weir._library.call("weir_free", pointer)

    @unittest.skipIf(cupy is None, "there is no CuPy")
    def test_what_torch_has_freed_serves_cupy(self):
        torch.cuda.synchronize()
        x = torch.empty(48 * MIB, dtype=torch.uint8, device="cuda")
        address = x.data_ptr()
        del x
        y = cupy.full(48 * MIB, 5, dtype=cupy.uint8)  # both are on the default stream
        self.assertEqual(y.data.ptr, address)
        self.assertEqual(int(torch.as_tensor(y, device="cuda")[-1]), 5)

    @unittest.skipIf(cupy is None, "there is no CuPy")
    def test_cupys_streams_have_their_own_memory(self):
        stream = cupy.cuda.Stream(non_blocking=True)
        before = in_use()
        with stream:
            x = cupy.arange(MIB, dtype=cupy.float32) * 2
            self.assertEqual(float(x.sum()), float(MIB) * (MIB - 1))
        self.assertIn((0, stream.ptr), weir.cupy._streams)
        self.assertTrue(weir.cupy.installed())
        del x
        self.assertEqual(in_use(), before)
        weir.cupy.release_stream(stream)

    @unittest.skipIf(cupy is None, "there is no CuPy")
    def test_threads_on_their_default_streams_have_memory_of_their_own(self):
        """As with CUPY_CUDA_PER_THREAD_DEFAULT_STREAM=1. Contents change where memory is used twice."""
        before, wrong, lent = in_use(), [], queue.SimpleQueue()

        def work(seed):
            with cupy.cuda.Stream.ptds:
                kept = cupy.full(MIB, seed, dtype=cupy.uint32)
                for i in range(200):
                    x = cupy.full(MIB + 1024 * (i % 5), seed * 1000 + i, dtype=cupy.uint32)
                    y = x * 2 + seed
                    del x
                    if i % 20 == 0:
                        wrong.append(int(cupy.count_nonzero(y != 2 * (seed * 1000 + i) + seed)))
                    if i % 50 == 0:
                        lent.put(y)  # freed by another thread
                    if i % 50 == 25 and not lent.empty():
                        lent.get()
                wrong.append(int(cupy.count_nonzero(kept != seed)))

        for first in (1, 9):  # threads that end leave their memory to the next ones
            threads = [threading.Thread(target=work, args=(first + i,)) for i in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        while not lent.empty():
            lent.get()
        self.assertEqual((len(wrong), sum(wrong)), (16 * 11, 0))
        self.assertEqual(in_use(), before)

    @unittest.skipIf(cupy is None, "there is no CuPy")
    def test_what_cupys_capture_used_is_nobody_elses_while_its_graph_lives(self):
        stream = cupy.cuda.Stream(non_blocking=True)
        with stream:
            x = cupy.arange(8 * MIB, dtype=cupy.uint32)
            y = (x * 2 + 1) * 3  # compiles, and has memory for what comes between
            del y
            stream.begin_capture()
            y = (x * 2 + 1) * 3
            graph = stream.end_capture()
        weir.cupy.free_all_blocks()
        others = [cupy.full(8 * MIB, 7, dtype=cupy.uint32) for _ in range(64)]
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()
        self.assertEqual(int(y[-1]), ((8 * MIB - 1) * 2 + 1) * 3)
        self.assertTrue(all(bool((other == 7).all()) for other in others))
        before = in_use()
        del graph
        self.assertEqual(in_use(), before)  # y is valid still
        self.assertEqual(int(y[-1]), ((8 * MIB - 1) * 2 + 1) * 3)
        del x, y, others
        weir.cupy.release_stream(stream)

    @unittest.skipIf(cupy is None, "there is no CuPy")
    def test_running_out_is_caught_as_cupys(self):
        with self.assertRaises(cupy.cuda.memory.OutOfMemoryError) as caught:
            cupy.empty(1 << 42, dtype=cupy.uint8)
        self.assertIn("out of memory on device 0", str(caught.exception))
        self.assertEqual(int(cupy.ones(10).sum()), 10)


if __name__ == "__main__":
    unittest.main()
