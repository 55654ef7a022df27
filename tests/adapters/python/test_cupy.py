"""weir.cupy with a stand-in for CuPy."""
import ctypes
import gc
import threading
import unittest

import cupy
import weir
import weir.cupy
from weir import _library

MIB = 1 << 20


def native_stream():
    """One that weir made stands for one of CuPy's."""
    made, native = _library.Stream(), ctypes.c_void_p()
    _library.library().weir_stream_create.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(_library.Stream)]
    _library.library().weir_stream_native.argtypes = [_library.Stream, ctypes.POINTER(ctypes.c_void_p)]
    _library.call("weir_stream_create", 0, 0, ctypes.byref(made))
    _library.call("weir_stream_native", made, ctypes.byref(native))
    return cupy.cuda.Stream(native.value)


def in_use():
    return weir.stats(0)["allocated_bytes"]["all"]["current"]


class Cupy(unittest.TestCase):
    def setUp(self):
        weir.open(host_memory=64 * MIB)
        weir.cupy._streams.clear()
        cupy.cuda.Stream.null.use()
        cupy.cuda.set_allocator(weir.cupy.allocator())

    def tearDown(self):
        gc.collect()
        self.assertEqual(in_use(), 0)
        weir.close()

    def test_memory_comes_from_weir_and_goes_back(self):
        pointer = cupy.cuda.alloc(3 * MIB)
        self.assertEqual(in_use(), 3 * MIB)
        del pointer
        self.assertEqual(in_use(), 0)
        weir.cupy.free_all_blocks()
        self.assertEqual(weir.stats(0)["reserved_bytes"]["all"]["current"], 0)

    def test_no_bytes_are_no_memory(self):
        self.assertEqual(cupy.cuda.alloc(0).ptr, 0)

    def test_the_current_stream_of_the_thread_is_honoured(self):
        first = cupy.cuda.alloc(MIB)
        address = first.ptr
        del first
        with_default = cupy.cuda.alloc(MIB).ptr
        native_stream().use()
        with_other = cupy.cuda.alloc(MIB).ptr
        self.assertEqual(with_default, address)
        self.assertNotEqual(with_other, address)
        found = []
        thread = threading.Thread(target=lambda: found.append(cupy.cuda.alloc(MIB).ptr))
        thread.start()
        thread.join()
        self.assertEqual(found, [address])  # its own current stream, the default one

    def test_streams_that_weir_knows_stay_until_released(self):
        stream = native_stream().use()
        cupy.cuda.alloc(MIB)
        key = (0, stream.ptr)
        self.assertIs(weir.cupy._streams[key], stream)
        cupy.cuda.Stream.null.use()
        weir.cupy.release_stream(stream)
        self.assertNotIn(key, weir.cupy._streams)
        weir.cupy.release_stream(stream)  # it is none of weir's by now

    def test_running_out_is_caught_as_cupys_and_as_weirs(self):
        for kind in (cupy.cuda.memory.OutOfMemoryError, weir.OutOfMemoryError):
            with self.assertRaisesRegex(kind, "asked for 100.00 MiB"):
                cupy.cuda.alloc(100 * MIB)

    def test_another_stream_can_be_recorded(self):
        array = type("Array", (), {"data": cupy.cuda.alloc(MIB)})()
        weir.cupy.record_stream(array, native_stream())

    def test_installing_sets_the_allocator_of_all_threads(self):
        weir.cupy.install()
        self.assertTrue(weir.cupy.installed())
        self.assertGreater(cupy.cuda.alloc(512).ptr, 0)


if __name__ == "__main__":
    unittest.main()
