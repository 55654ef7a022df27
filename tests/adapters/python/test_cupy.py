"""weir.cupy with a stand-in for CuPy."""
import ctypes
import gc
import os
import pickle
import threading
import time
import types
import unittest
import unittest.mock

import cupy
import weir
import weir.cupy
from weir import _library

MIB = 1 << 20


CALLBACK = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


def native_stream(device=0, device_id=-1):
    """A stream of weir's stands for one of CuPy's."""
    made, native = _library.Stream(), ctypes.c_void_p()
    _library.library().weir_stream_create.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.POINTER(_library.Stream)]
    _library.library().weir_stream_native.argtypes = [_library.Stream, ctypes.POINTER(ctypes.c_void_p)]
    _library.call("weir_stream_create", device, 0, ctypes.byref(made))
    _library.call("weir_stream_native", made, ctypes.byref(native))
    return cupy.cuda.Stream(native.value, device_id)


def queue(stream, function):
    """As cupy.cuda.Stream.launch_host_func()."""
    _library.library().weir_stream_callback.argtypes = [_library.Stream, CALLBACK, ctypes.c_void_p]
    _library.call("weir_stream_callback", _library.stream_of(0, stream.ptr), function, None)


def synchronize(stream):
    _library.library().weir_stream_synchronize.argtypes = [_library.Stream]
    _library.call("weir_stream_synchronize", _library.stream_of(0, stream.ptr))


def array(size):
    return types.SimpleNamespace(data=cupy.cuda.alloc(size), size=size)


def in_use():
    return weir.stats(0)["allocated_bytes"]["all"]["current"]


class Cupy(unittest.TestCase):
    def setUp(self):
        weir.open(host_memory=64 * MIB, host_devices=2)
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

    def test_what_runs_within_an_allocation_does_not_change_its_stream(self):
        stream, other = native_stream().use(), native_stream()
        with_stream = cupy.cuda.alloc(MIB).ptr

        memory, nested = cupy.cuda.memory.CFunctionAllocatorMemory, []

        def interrupted(*arguments):  # as by a finalizer or a signal handler
            if not nested:
                nested.append(other.use())
                cupy.cuda.alloc(MIB)
                stream.use()
            return memory(*arguments)

        with unittest.mock.patch.object(cupy.cuda.memory, "CFunctionAllocatorMemory", interrupted):
            self.assertEqual(cupy.cuda.alloc(MIB).ptr, with_stream)
        cupy.cuda.Stream.null.use()

    def test_streams_that_weir_knows_stay_until_released(self):
        stream = native_stream().use()
        cupy.cuda.alloc(MIB)
        key = (0, stream.ptr)
        self.assertIs(weir.cupy._streams[key], stream)
        cupy.cuda.Stream.null.use()
        weir.cupy.release_stream(stream)
        self.assertNotIn(key, weir.cupy._streams)
        weir.cupy.release_stream(stream)  # weir no longer knows it

    def test_a_stream_that_cannot_be_released_is_kept(self):
        stream = native_stream().use()
        cupy.cuda.alloc(MIB)
        cupy.cuda.Stream.null.use()
        with unittest.mock.patch.object(_library, "call", side_effect=weir.Error("it is captured")):
            with self.assertRaises(weir.Error):
                weir.cupy.release_stream(stream)
        self.assertIs(weir.cupy._streams[(0, stream.ptr)], stream)
        weir.cupy.release_stream(stream)

    def test_the_current_devices_memory_goes_back(self):
        with unittest.mock.patch.object(cupy.cuda.runtime, "getDevice", return_value=1), \
                unittest.mock.patch.object(weir.cupy, "empty_cache") as empty:
            weir.cupy.free_all_blocks()
        empty.assert_called_once_with(1)

    def test_running_out_is_caught_as_cupys_and_as_weirs(self):
        for kind in (cupy.cuda.memory.OutOfMemoryError, weir.OutOfMemoryError):
            with self.assertRaisesRegex(kind, "asked for 100.00 MiB"):
                cupy.cuda.alloc(100 * MIB)

    def test_running_out_can_be_told_to_another_process(self):
        with self.assertRaises(weir.OutOfMemoryError) as raised:
            cupy.cuda.alloc(100 * MIB)
        told = pickle.loads(pickle.dumps(raised.exception))
        self.assertIs(type(told), weir.OutOfMemoryError)
        self.assertEqual((str(told), told.status, told.name), (str(raised.exception), -2, "WEIR_ERR_OUT_OF_MEMORY"))

    def test_arrays_in_cycles_go_before_it_runs_out(self):
        cycle = [cupy.cuda.alloc(40 * MIB)]
        cycle.append(cycle)
        del cycle
        self.assertNotEqual(cupy.cuda.alloc(40 * MIB).ptr, 0)

    def test_another_stream_can_be_recorded(self):
        stream = native_stream()
        weir.cupy.record_stream(array(MIB), stream)
        self.assertIs(weir.cupy._streams[(0, stream.ptr)], stream)
        weir.cupy.release_stream(stream)
        self.assertEqual(weir.cupy._streams, {})

    def test_a_stream_stays_though_the_array_is_not_weirs(self):
        stream = native_stream()
        foreign = types.SimpleNamespace(data=types.SimpleNamespace(ptr=MIB, device_id=0), size=1)
        with self.assertRaisesRegex(weir.Error, "not"):
            weir.cupy.record_stream(foreign, stream)
        self.assertIs(weir.cupy._streams[(0, stream.ptr)], stream)  # weir knows it
        weir.cupy.release_stream(stream)

    def test_the_object_that_owns_a_stream_stays(self):
        stream = native_stream()
        external = cupy.cuda.ExternalStream(stream.ptr)
        for current in (external, stream, external):
            current.use()
            cupy.cuda.alloc(MIB)
        self.assertIs(weir.cupy._streams[(0, stream.ptr)], stream)
        cupy.cuda.Stream.null.use()
        weir.cupy.release_stream(stream)

    def test_recording_a_stream_on_nothing_does_nothing(self):
        stream = native_stream()
        weir.cupy.record_stream(array(0), stream)
        self.assertEqual(weir.cupy._streams, {})

    def test_a_recorded_stream_may_be_of_another_device(self):
        stream = native_stream(device=1, device_id=1)
        weir.cupy.record_stream(array(MIB), stream)
        self.assertIs(weir.cupy._streams[(1, stream.ptr)], stream)
        external = cupy.cuda.Stream(stream.ptr)  # CuPy does not say which
        weir.cupy.record_stream(array(MIB), external)
        weir.cupy.release_stream(external)
        self.assertEqual(weir.cupy._streams, {})

    def test_a_default_stream_can_be_recorded(self):
        native_stream().use()
        weir.cupy.record_stream(array(MIB), cupy.cuda.Stream.null)
        self.assertNotIn((0, 0), weir.cupy._streams)

    def test_waiting_lets_go_of_the_interpreter(self):
        """The awaited work may be a Python function, which needs the interpreter's lock."""
        ran = []
        function = CALLBACK(lambda unused: (time.sleep(0.3), ran.append(True)))
        stream, used = native_stream(), array(40 * MIB)
        weir.cupy.record_stream(used, stream)
        queue(stream, function)
        del used  # the stream owns the memory until that function has run
        cupy.cuda.alloc(40 * MIB)
        self.assertEqual(ran, [True])

    def test_installing_sets_the_allocator_of_all_threads(self):
        weir.cupy.install()
        self.assertTrue(weir.cupy.installed())
        self.assertGreater(cupy.cuda.alloc(512).ptr, 0)

    def test_weir_can_be_installed_again(self):
        weir.cupy.install()
        ours = cupy.cuda.get_allocator()
        cupy.cuda.set_allocator(lambda size: None)
        self.assertFalse(weir.cupy.installed())
        weir.cupy.install()
        self.assertIs(cupy.cuda.get_allocator(), ours)
        self.assertTrue(weir.cupy.installed())


class PerThread(unittest.TestCase):
    """Per-thread default streams: CuPy names them all alike."""

    def setUp(self):
        weir.open(host_memory=64 * MIB, host_devices=2)
        cupy.cuda.set_allocator(weir.cupy.allocator())
        self.begin_thread()

    def tearDown(self):
        gc.collect()
        cupy.cuda.Stream.null.use()
        self.assertEqual(in_use(), 0)
        weir.close()

    def begin_thread(self):
        cupy.cuda.runtime.per_thread[threading.get_ident()] = native_stream().ptr
        cupy.cuda.Stream.ptds.use()

    def own(self):
        """The calling thread's stream, by a name of its own."""
        return cupy.cuda.ExternalStream(cupy.cuda.runtime.per_thread[threading.get_ident()])

    def in_thread(self, function):
        found = []

        def run():
            self.begin_thread()
            found.append(function())

        thread = threading.Thread(target=run)
        thread.start()
        thread.join()
        return found[0]

    def blocked(self, stream):
        """Work on the stream that lasts until the event is set."""
        ends = threading.Event()
        function = CALLBACK(lambda unused: ends.wait())
        self.addCleanup(lambda: function)
        queue(stream, function)
        self.addCleanup(ends.set)
        return ends

    def test_a_thread_gets_again_what_it_has_freed_without_asking_the_driver(self):
        addresses = set()
        cupy.cuda.alloc(MIB)
        cupy.cuda.runtime.calls.clear()
        for _ in range(8):
            addresses.add(cupy.cuda.alloc(MIB).ptr)
        self.assertEqual(len(addresses), 1)
        self.assertEqual(cupy.cuda.runtime.calls, ["record", "wait"] * 8)  # at each free, and none at an allocation

    def test_two_threads_have_memory_of_their_own(self):
        address = cupy.cuda.alloc(20 * MIB).ptr
        self.assertNotEqual(self.in_thread(lambda: cupy.cuda.alloc(20 * MIB).ptr), address)

    def test_what_a_thread_frees_is_used_elsewhere_after_its_work(self):
        order = []
        functions = [CALLBACK(lambda unused, name=name, wait=wait: (time.sleep(wait), order.append(name)))
                     for name, wait in (("thread", 0.3), ("default", 0))]
        block = cupy.cuda.alloc(40 * MIB)
        queue(self.own(), functions[0])
        del block
        self.assertEqual(in_use(), 0)
        default = cupy.cuda.Stream.null.use()
        cupy.cuda.alloc(40 * MIB)
        queue(default, functions[1])
        synchronize(default)
        self.assertEqual(order, ["thread", "default"])

    def test_what_another_thread_frees_goes_back_when_its_own_asks_next(self):
        block = [cupy.cuda.alloc(20 * MIB)]
        address = block[0].ptr
        self.in_thread(block.clear)
        self.assertEqual(in_use(), 20 * MIB)
        self.assertEqual(cupy.cuda.alloc(20 * MIB).ptr, address)
        self.assertEqual(in_use(), 0)

    def test_a_thread_that_ends_leaves_its_memory_to_the_next_behind_its_work(self):
        order, made = [], []

        def thread(name, wait):
            function = CALLBACK(lambda unused: (time.sleep(wait), order.append(name)))
            made.append((function, cupy.cuda.alloc(20 * MIB)))
            queue(self.own(), function)
            return made[-1][1].ptr

        address = self.in_thread(lambda: thread("first", 0.3))
        first = made.pop()[0]
        self.assertEqual(in_use(), 0)  # it is nobody's lane, so what is freed need not wait for its thread
        self.assertEqual(self.in_thread(lambda: (thread("second", 0), synchronize(self.own()))[0]), address)
        self.assertEqual(order, ["first", "second"])
        made.clear()
        del first

    def test_a_threads_stream_can_be_recorded(self):
        cupy.cuda.Stream.null.use()
        used = array(20 * MIB)
        ends = self.blocked(self.own())
        weir.cupy.record_stream(used, cupy.cuda.Stream.ptds)
        del used
        self.assertEqual(weir.stats(0)["pending_frees"], 1)
        ends.set()
        synchronize(self.own())
        weir.cupy.free_all_blocks()
        self.assertEqual(weir.stats(0)["reserved_bytes"]["all"]["current"], 0)

    def test_while_it_is_captured_memory_is_refused_and_what_is_freed_waits(self):
        block = cupy.cuda.alloc(MIB)
        with unittest.mock.patch.object(cupy.cuda.runtime, "captured", True):
            del block
            self.assertEqual(in_use(), MIB)
            with self.assertRaisesRegex(weir.Error, "capture another stream"):
                cupy.cuda.alloc(MIB)
        cupy.cuda.alloc(MIB)

    def test_while_it_is_captured_memory_is_refused_though_nothing_was_freed(self):
        kept = cupy.cuda.alloc(MIB)
        with unittest.mock.patch.object(cupy.cuda.runtime, "captured", True):
            with self.assertRaisesRegex(weir.Error, "capture another stream"):
                cupy.cuda.alloc(MIB)
        self.assertEqual(in_use(), MIB)
        del kept

    def test_arrays_are_freed_on_their_own_device(self):
        block = cupy.cuda.alloc(MIB)
        with unittest.mock.patch.object(cupy.cuda.runtime, "device", 1):
            with unittest.mock.patch.object(cupy.cuda.runtime, "setDevice", wraps=cupy.cuda.runtime.setDevice) as chosen:
                del block
            self.assertEqual([call.args for call in chosen.call_args_list], [(0,), (1,)])

    def test_running_out_is_caught_as_cupys_and_as_weirs(self):
        for kind in (cupy.cuda.memory.OutOfMemoryError, weir.OutOfMemoryError):
            with self.assertRaisesRegex(kind, "asked for 100.00 MiB"):
                cupy.cuda.alloc(100 * MIB)

    def test_the_library_may_be_opened_anew(self):
        cupy.cuda.alloc(MIB)
        weir.close()
        weir.open(host_memory=64 * MIB)
        self.begin_thread()
        self.assertNotEqual(cupy.cuda.alloc(MIB).ptr, 0)

    def test_no_memory_is_lost_where_the_thread_cannot_wait(self):
        with unittest.mock.patch.object(cupy.cuda.runtime, "streamWaitEvent", side_effect=RuntimeError("no")):
            with self.assertRaisesRegex(RuntimeError, "no"):
                cupy.cuda.alloc(MIB)
        self.assertEqual(in_use(), 0)


class Captures(unittest.TestCase):
    """On the stand-in for libcuda, on which CuPy captures by itself."""

    def setUp(self):
        path = os.environ["TEST_CUDA"]
        with unittest.mock.patch.dict(os.environ, WEIR_LIB_CUDA=path, WEIR_BACKEND="cuda"):
            weir.open()
        cupy.cuda.driver, context, native = ctypes.CDLL(path), ctypes.c_void_p(), ctypes.c_void_p()
        for code in (cupy.cuda.driver.cuInit(0), cupy.cuda.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0),
                     cupy.cuda.driver.cuCtxSetCurrent(context),
                     cupy.cuda.driver.cuStreamCreateWithPriority(ctypes.byref(native), 1, 0)):
            self.assertEqual(code, 0)
        self.context = context
        weir.cupy._streams.clear()
        cupy.cuda.set_allocator(weir.cupy.allocator())
        self.stream = cupy.cuda.Stream(native.value, 0).use()

    def tearDown(self):
        cupy.cuda.Stream.null.use()
        gc.collect()
        self.assertEqual(in_use(), 0)
        self.assertEqual(weir.cupy._captures, {})
        weir.close()
        cupy.cuda.driver.cuStreamDestroy_v2(ctypes.c_void_p(self.stream.ptr))
        cupy.cuda.driver.cuDevicePrimaryCtxRelease_v2(0)
        cupy.cuda.driver = None

    def capture(self):
        """A graph that uses two blocks, and their addresses."""
        self.stream.begin_capture()
        used = [cupy.cuda.alloc(20 * MIB) for _ in range(2)]
        addresses = [pointer.ptr for pointer in used]
        del used
        return self.stream.end_capture(), addresses

    def assert_apart(self, addresses):
        """What is written there, as by a launch, is not in all the memory that another stream can get."""
        cupy.cuda.Stream.null.use()
        blocks = []
        with self.assertRaises(weir.OutOfMemoryError):
            while True:
                blocks.append(cupy.cuda.alloc(20 * MIB))
        self.assertGreater(len(blocks), 10)
        for block in blocks:
            ctypes.memset(block.ptr, 1, 20 * MIB)
        for address in addresses:
            ctypes.memset(address, 2, 20 * MIB)
        for block in blocks:
            self.assertEqual(ctypes.string_at(block.ptr, 20 * MIB).count(2), 0)

    def test_what_a_capture_used_is_nobody_elses_while_its_graph_lives(self):
        warm = [cupy.cuda.alloc(20 * MIB) for _ in range(8)]
        del warm
        graph, addresses = self.capture()
        self.assert_apart(addresses)
        del graph
        gc.collect()
        weir.cupy.free_all_blocks()
        self.assertEqual(weir.stats(0)["reserved_bytes"]["all"]["current"], 0)

    def test_a_graph_can_do_what_cupys_can(self):
        graph, _ = self.capture()
        graph.launch(self.stream)
        self.assertIs(graph.launched_on, self.stream)
        self.assertEqual(graph.debug_dot_str(), "digraph")
        with self.assertRaises(AttributeError):
            graph.unknown

    def test_a_launch_alone_keeps_the_memory(self):
        graph, addresses = self.capture()
        launch = graph.launch
        del graph
        self.assert_apart(addresses)
        launch(self.stream)

    def test_what_outlives_a_graph_stays_valid(self):
        self.stream.begin_capture()
        kept = cupy.cuda.alloc(20 * MIB)
        graph = self.stream.end_capture()
        del graph
        self.assert_apart([kept.ptr])

    def test_a_capture_that_cannot_end_is_forgotten(self):
        self.stream.begin_capture()
        cupy.cuda.alloc(MIB)
        self.assertEqual(cupy.cuda.driver.cuStreamSynchronize(ctypes.c_void_p(self.stream.ptr)) == 0, False)
        with self.assertRaisesRegex(RuntimeError, "of the driver"):
            self.stream.end_capture()
        self.assertEqual(weir.cupy._captures, {})
        self.assertEqual(len(self.capture()[1]), 2)

    def test_only_the_thread_that_began_a_capture_ends_it(self):
        failed = []

        def end():
            cupy.cuda.driver.cuCtxSetCurrent(self.context)
            try:
                self.stream.end_capture()
            except RuntimeError as error:
                failed.append(error)

        thread_local = 1
        self.stream.begin_capture(thread_local)
        thread = threading.Thread(target=end)
        thread.start()
        thread.join()
        self.assertEqual(len(failed), 1)
        used = cupy.cuda.alloc(20 * MIB)
        self.assertIsInstance(self.stream.end_capture(), weir.cupy.Graph)
        del used

    def test_weir_says_why_a_capture_is_not_known(self):
        with unittest.mock.patch.object(_library, "call_adapters", side_effect=weir.Error("no pools")):
            with self.assertRaisesRegex(weir.Error, "no pools"):
                self.stream.begin_capture()
        self.assertEqual(len(self.capture()[1]), 2)  # that one is over


if __name__ == "__main__":
    unittest.main()
