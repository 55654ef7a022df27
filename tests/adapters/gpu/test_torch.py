"""PyTorch with weir installed, on a GPU. Run by scripts/clients, a process per file."""
import ctypes
import gc
import pickle
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest

import torch
import weir.torch

MIB = 1 << 20


def setUpModule():
    if not torch.cuda.device_count():
        raise unittest.SkipTest("there is no GPU")
    weir.torch.install()


def in_use():
    gc.collect()
    return weir.stats(0)["allocated_bytes"]["all"]["current"]


class Memory(unittest.TestCase):
    def setUp(self):
        gc.collect()
        torch.cuda.synchronize()

    def test_tensors_are_weirs_memory(self):
        before = in_use()
        x = torch.ones(4 * MIB, device="cuda")
        self.assertEqual(in_use() - before, 16 * MIB)
        self.assertEqual(float((x + 1).sum()), 8 * MIB)
        del x
        self.assertEqual(in_use(), before)

    def test_torchs_statistics_are_weirs(self):
        x = torch.ones(MIB, device="cuda")
        self.assertEqual(torch.cuda.memory_allocated(), in_use())
        self.assertGreaterEqual(torch.cuda.max_memory_allocated(), 4 * MIB)
        self.assertGreaterEqual(torch.cuda.memory_reserved(), torch.cuda.memory_allocated())
        self.assertIn("Allocated memory", torch.cuda.memory_summary())
        peak = torch.cuda.max_memory_allocated()
        del x
        torch.cuda.reset_peak_memory_stats()
        self.assertLess(torch.cuda.max_memory_allocated(), peak)

    def test_running_out_is_torchs_error_and_can_be_caught(self):
        self.assertTrue(weir.torch.raises_its_own())
        with self.assertRaises(torch.cuda.OutOfMemoryError) as caught:
            torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
        self.assertIn("weir: out of memory on device 0", str(caught.exception))
        self.assertIn(" out of memory. Tried to allocate 4096.00 GiB. GPU 0 has a total capacity of ", str(caught.exception))
        self.assertEqual(float(torch.ones(10, device="cuda").sum()), 10)

    def test_running_out_in_a_backward_pass_is_the_same_error(self):
        class Greedy(torch.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                return x.clone()

            @staticmethod
            def backward(ctx, gradient):
                return gradient + torch.empty(1 << 42, dtype=torch.uint8, device="cuda")[0]

        x = torch.ones(10, device="cuda", requires_grad=True)
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            Greedy.apply(x).sum().backward()

    def test_a_fraction_limits(self):
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.empty_cache()
        limit = weir.stats(0)["reserved_bytes"]["all"]["current"] + 256 * MIB
        torch.cuda.set_per_process_memory_fraction(limit / total)
        try:
            with self.assertRaises(torch.cuda.OutOfMemoryError):
                torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")
            torch.empty(200 * MIB, dtype=torch.uint8, device="cuda")
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        torch.empty(300 * MIB, dtype=torch.uint8, device="cuda")

    def test_the_fraction_is_told(self):
        torch.cuda.set_per_process_memory_fraction(0.5)
        try:
            self.assertAlmostEqual(torch.cuda.get_per_process_memory_fraction(), 0.5)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        self.assertEqual(torch.cuda.get_per_process_memory_fraction(), 1.0)

    def test_an_empty_tensor_is_none_of_weirs(self):
        before = in_use()
        self.assertEqual(torch.empty(0, device="cuda").numel(), 0)
        self.assertEqual(in_use(), before)

    def test_emptying_the_cache_gives_memory_to_the_device(self):
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info()[0]
        x = torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        del x
        self.assertLess(torch.cuda.mem_get_info()[0], free - (1 << 29))
        torch.cuda.empty_cache()
        self.assertGreater(torch.cuda.mem_get_info()[0], free - (64 << 20))


class Streams(unittest.TestCase):
    def test_a_recorded_stream_keeps_the_memory_until_its_work_is_over(self):
        side = torch.cuda.Stream()
        for _ in range(20):
            x = torch.full((4 * MIB,), 7.0, device="cuda")
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                torch.cuda._sleep(20_000_000)
                copied = x.clone()
            x.record_stream(side)
            del x
            torch.full((4 * MIB,), 9.0, device="cuda")  # a block reused too early would overwrite what side still reads
            torch.cuda.current_stream().wait_stream(side)
            self.assertTrue(bool((copied == 7).all()))

    def test_threads_with_streams_of_their_own_do_not_disturb_each_other(self):
        wrong = []

        def work(value):
            with torch.cuda.stream(torch.cuda.Stream()):
                for i in range(300):
                    x = torch.full((1 + i % 50, 1024), float(value), device="cuda")
                    if not bool(((x * 2).sum(1) == 2048 * value).all()):
                        wrong.append(i)

        threads = [threading.Thread(target=work, args=(value,)) for value in range(1, 9)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        weir._library.call("weir_validate", 0)

    def test_a_stream_of_a_green_context_has_memory_and_libraries(self):
        contexts = getattr(torch.cuda, "green_contexts", None)
        if contexts is None or not contexts.SUPPORTED:
            self.skipTest("this PyTorch has no green contexts")
        context = contexts.GreenContext.create(num_sms=8)
        a = torch.full((1024, 1024), 2.0, device="cuda")
        stream = context.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                b = a @ a  # frees what the product before had
        a.record_stream(stream)
        torch.cuda.current_stream().wait_stream(stream)
        self.assertEqual(float(b.min()), 4096)
        self.assertEqual(float(b.max()), 4096)
        del a, b
        weir.torch.release_stream(stream)


class Graphs(unittest.TestCase):
    def capture(self, pool=None):
        x = torch.zeros(4 * MIB, device="cuda")
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            (x * 2 + 1).relu()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            y = (x * 2 + 1).relu() * 3
        return graph, x, y

    def replay(self, graph, x, y):
        for value in (1.0, 5.0):
            x.fill_(value)
            scratch = [torch.full((4 * MIB,), -1.0, device="cuda") for _ in range(8)]
            graph.replay()
            self.assertTrue(bool((y == (2 * value + 1) * 3).all()))
            del scratch

    def test_a_graph_keeps_its_memory_to_itself(self):
        graph, x, y = self.capture()
        torch.cuda.empty_cache()
        self.replay(graph, x, y)

    def test_memory_comes_back_with_the_graph(self):
        torch.cuda.empty_cache()
        reserved = torch.cuda.memory_reserved()
        for _ in range(5):
            graph, x, y = self.capture()
            self.replay(graph, x, y)
            del graph, x, y
        gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertLessEqual(torch.cuda.memory_reserved(), reserved + 64 * MIB)

    def test_graphs_may_share_a_pool(self):
        first = self.capture()
        second = self.capture(first[0].pool())
        self.replay(*first)
        self.replay(*second)

    def test_running_out_while_capturing_leaves_the_process_usable(self):
        graph = torch.cuda.CUDAGraph()
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            with torch.cuda.graph(graph):
                torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
        self.replay(*self.capture())


@unittest.skipIf(torch.cuda.device_count() < 2, "there is one GPU")
class Devices(unittest.TestCase):
    def test_tensors_go_from_one_to_the_other(self):
        x = torch.arange(4 * MIB, device="cuda:0", dtype=torch.float32).view(2048, 2048)
        for tensor in (x, x.t(), x[::2, ::3]):  # by the driver, and by kernels that read the peer's memory
            self.assertTrue(torch.equal(tensor.to("cuda:1").cpu(), tensor.cpu()))
        self.assertGreater(weir.stats(1)["reserved_bytes"]["all"]["current"], 0)

    def test_a_stream_of_the_other_can_be_recorded(self):
        x = torch.full((MIB,), 3.0, device="cuda:0")
        side = torch.cuda.Stream("cuda:1")
        side.wait_stream(torch.cuda.current_stream(0))
        with torch.cuda.stream(side):
            y = x.to("cuda:1", non_blocking=True)
        x.record_stream(side)
        del x
        torch.full((MIB,), 9.0, device="cuda:0")
        side.synchronize()
        self.assertTrue(bool((y == 3).all()))

    def test_the_current_device_is_asked_for_memory(self):
        self.addCleanup(torch.cuda.set_device, 0)
        for device in (1, 0, 1):
            torch.cuda.set_device(device)
            self.assertEqual(torch.empty(MIB, device="cuda").get_device(), device)
            with torch.cuda.device(1 - device):
                self.assertEqual(torch.empty(MIB, device="cuda").get_device(), 1 - device)
            self.assertEqual(torch.empty(MIB, device="cuda").get_device(), device)
        found = []
        thread = threading.Thread(target=lambda: found.append(torch.empty(MIB, device="cuda").get_device()))
        thread.start()
        thread.join()
        self.assertEqual(found, [0])

    def test_a_device_that_is_set_before_it_was_ever_used_is_current(self):
        code = """
import torch, weir.torch
weir.torch.install()
with torch.cuda.device(1):
    there = torch.ones(1000, device="cuda")
here = torch.ones(1000, device="cuda")
print(there.get_device(), here.get_device(), [weir.stats(i)["allocated_bytes"]["all"]["current"] for i in (0, 1)])
"""
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
        self.assertEqual((result.returncode, result.stdout), (0, "1 0 [4096, 4096]\n"), result.stderr)


class Pools(unittest.TestCase):
    def test_a_mempool_has_its_memory_to_itself(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            self.assertEqual(pool.use_count(), 2)
            x = torch.full((MIB,), 7.0, device="cuda")
        y = torch.full((MIB,), 8.0, device="cuda")
        segments = pool.snapshot()
        inside = [s for s in segments if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]]
        self.assertEqual([s["segment_pool_id"] for s in inside], [pool.id])
        self.assertFalse([s for s in segments if s["address"] <= y.data_ptr() < s["address"] + s["total_size"]])
        address = x.data_ptr()
        del x
        self.assertNotEqual(torch.empty(MIB, device="cuda").data_ptr(), address)
        with torch.cuda.use_mem_pool(pool):
            self.assertEqual(torch.empty(MIB, device="cuda").data_ptr(), address)
        self.assertEqual(pool.use_count(), 1)

    def test_threads_may_be_in_one_mempool_at_once(self):
        pool, both_in, one_left, tensors = torch.cuda.MemPool(), threading.Barrier(2), threading.Event(), {}

        def leaves_first():
            with torch.cuda.use_mem_pool(pool):
                both_in.wait(60)
            one_left.set()

        def stays():
            with torch.cuda.use_mem_pool(pool):
                both_in.wait(60)
                one_left.wait(60)
                tensors["inside"] = torch.ones(MIB, device="cuda")
            tensors["outside"] = torch.ones(MIB, device="cuda")

        threads = [threading.Thread(target=leaves_first), threading.Thread(target=stays)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        used = [block["address"] for segment in pool.snapshot() for block in segment["blocks"]]
        self.assertIn(tensors["inside"].data_ptr(), used)
        self.assertNotIn(tensors["outside"].data_ptr(), used)

    def test_statistics_are_told_while_there_are_mempools(self):
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.ones(MIB, device="cuda")
        self.assertEqual(torch.cuda.memory_stats()["allocated_bytes.all.current"], in_use())
        name = f"reserved_bytes_by_private_pools.{pool.id[0]}_{pool.id[1]}.all.current"
        self.assertGreaterEqual(weir.torch.memory_stats()[name], x.nbytes)
        known = "reserved_bytes_by_private_pools" in torch.cuda.memory_stats.__doc__  # since PyTorch 2.13
        self.assertEqual(name in torch.cuda.memory_stats(), known)

    def test_a_mempools_memory_goes_back_with_it(self):
        gc.collect()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(pool):
            x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
        del pool
        x.fill_(3)
        self.assertEqual(int(x[5]), 3)
        del x
        torch.cuda.empty_cache()
        self.assertLessEqual(torch.cuda.memory_reserved(), before)

    def test_a_graph_may_use_a_mempool(self):
        pool, x = torch.cuda.MemPool(), torch.ones(MIB, device="cuda")
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, pool=pool.id):
            y = x * 2
        x.fill_(5)
        captured.replay()
        self.assertEqual(float(y.sum()), 10 * MIB)
        self.assertTrue(pool.snapshot())

    def test_a_capture_may_use_a_mempool_for_a_part(self):
        pool, x, captured = torch.cuda.MemPool(), torch.ones(MIB, device="cuda"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            with torch.cuda.use_mem_pool(pool):
                y = x + 1
                z = y * 2
            w = y + z
        used = [block["address"] for segment in pool.snapshot() for block in segment["blocks"]]
        self.assertIn(y.data_ptr(), used)
        self.assertIn(z.data_ptr(), used)
        self.assertNotIn(w.data_ptr(), used)
        own = torch.cuda.memory_snapshot(captured.pool())
        self.assertIn(w.data_ptr(), [block["address"] for segment in own for block in segment["blocks"]])
        del pool, z
        gc.collect()
        torch.full((8 * MIB,), 9.0, device="cuda")
        x.fill_(3)
        captured.replay()
        self.assertEqual(float(w.sum()), 12 * MIB)


class PoolsOfOthers(unittest.TestCase):
    SOURCE = r"""
#include <dlfcn.h>
#include <stddef.h>
#include <sys/types.h>
size_t given, taken, last;
int device_of_last;
static void *driver(const char *name) { return dlsym(dlopen("libcuda.so.1", RTLD_NOW), name); }
void *my_malloc(ssize_t size, int device, void *stream)
{
    unsigned long long made = 0;
    if (((int (*)(unsigned long long *, size_t))driver("cuMemAlloc_v2"))(&made, (size_t)size) != 0) return NULL;
    given += (size_t)size, last = made, device_of_last = device;
    return (void *)made;
}
void my_free(void *pointer, ssize_t size, int device, void *stream)
{
    ((int (*)(unsigned long long))driver("cuMemFree_v2"))((unsigned long long)pointer);
    taken += (size_t)size;
}
"""

    @classmethod
    def setUpClass(cls):
        if not shutil.which("cc"):
            raise unittest.SkipTest("there is no C compiler")
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        path = f"{folder}/mine.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, "-ldl"], input=cls.SOURCE, text=True, check=True)
        cls.counts = ctypes.CDLL(path)
        cls.allocator = torch.cuda.memory.CUDAPluggableAllocator(path, "my_malloc", "my_free")

    def setUp(self):
        gc.collect()
        torch.cuda.empty_cache()  # what former tests had goes back now

    def count(self, name):
        return ctypes.c_size_t.in_dll(self.counts, name).value

    def test_a_mempool_has_its_segments_from_an_allocator_and_gives_them_back(self):
        given, taken = self.count("given"), self.count("taken")
        pool = torch.cuda.MemPool(self.allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            x, y = torch.ones(MIB, device="cuda"), torch.ones(1000, device="cuda")
        z = torch.ones(MIB, device="cuda")
        self.assertEqual(float((x + z).sum()), 2 * MIB)
        inside = self.count("given") - given
        self.assertGreaterEqual(inside, 4 * MIB + 4096)
        self.assertEqual(sum(s["total_size"] for s in pool.snapshot()), inside)
        del x, y, pool
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(self.count("taken") - taken, inside)

    def test_a_graph_may_use_such_a_pool(self):
        pool, x = torch.cuda.MemPool(self.allocator.allocator()), torch.ones(MIB, device="cuda")
        given, captured = self.count("given"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured, pool=pool.id):
            y = x * 2
        self.assertGreater(self.count("given"), given)
        x.fill_(5)
        captured.replay()
        self.assertEqual(float(y.sum()), 10 * MIB)

    def test_weirs_own_allocator_and_what_is_none_are_refused(self):
        for allocator in weir.torch._installed.allocator(), object():
            with self.assertRaisesRegex(weir.Error, "cannot have its memory from"):
                torch.cuda.MemPool(allocator)


class Watching(unittest.TestCase):
    def test_the_profiler_has_the_memory_of_each_operation(self):
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(activities=activities, profile_memory=True) as profile:
            x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
            y = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
            del y
        self.assertEqual(sum(event.self_device_memory_usage for event in profile.key_averages()), 3 * MIB)
        self.assertEqual(x.numel(), 3 * MIB)

    def test_an_observer_is_told_that_memory_has_run_out(self):
        seen = []

        def observe(device, asked, total, free):
            seen.append((device, asked, total, free, torch.cuda.memory_allocated(), len(torch.cuda.memory_snapshot())))

        torch._C._cuda_attach_out_of_memory_observer(observe)
        x = torch.empty(MIB, dtype=torch.uint8, device="cuda")
        with self.assertRaisesRegex(torch.cuda.OutOfMemoryError, "asked for 4096.00 GiB"):
            torch.empty(1 << 42, dtype=torch.uint8, device="cuda")
        self.assertEqual(len(seen), 1)
        device, asked, total, free, allocated, segments = seen[0]
        self.assertEqual((device, asked, total), (0, 1 << 42, torch.cuda.mem_get_info()[1]))
        self.assertTrue(0 < free < total and allocated >= x.numel() and segments)

    @unittest.skipUnless(hasattr(torch.accelerator, "memory_allocated"), "since PyTorch 2.9")
    def test_functions_for_any_accelerator_are_weirs(self):
        x = torch.ones(MIB, device="cuda")
        self.assertEqual(torch.accelerator.memory_allocated(), in_use())
        self.assertGreaterEqual(torch.accelerator.max_memory_reserved(), 4 * MIB)
        del x
        torch.accelerator.reset_peak_memory_stats()
        self.assertEqual(torch.accelerator.max_memory_allocated(), in_use())
        torch.accelerator.reset_accumulated_memory_stats()
        self.assertEqual(torch.accelerator.memory_stats()["allocation.all.freed"], 0)
        torch.empty(1 << 30, dtype=torch.uint8, device="cuda")
        before = torch.accelerator.memory_reserved()
        torch.accelerator.empty_cache()
        self.assertLess(torch.accelerator.memory_reserved(), before)


class Snapshots(unittest.TestCase):
    def test_a_snapshot_has_the_tensors(self):
        x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        blocks = [block for segment in torch.cuda.memory_snapshot() for block in segment["blocks"]]
        self.assertIn((x.data_ptr(), 3 * MIB, "active_allocated"),
                      [(block["address"], block["size"], block["state"]) for block in blocks])

    def test_a_snapshot_is_dumped_as_ever(self):
        with tempfile.NamedTemporaryFile() as file:
            torch.cuda.memory._dump_snapshot(file.name)
            self.assertIn("segments", pickle.load(file))

    def test_recording_begins_when_it_is_asked_for(self):
        before = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        torch.cuda.memory._record_memory_history(max_entries=100000)
        after = torch.empty(5 * MIB, dtype=torch.uint8, device="cuda")
        events = [(e["action"], e["addr"]) for e in torch.cuda.memory._snapshot()["device_traces"][0]]
        self.assertIn(("alloc", after.data_ptr()), events)
        self.assertNotIn(("alloc", before.data_ptr()), events)
        freed = before.data_ptr()
        del before
        events = [(e["action"], e["addr"]) for e in torch.cuda.memory._snapshot()["device_traces"][0]]
        self.assertIn(("free_completed", freed), events)
        torch.cuda.memory._record_memory_history(None)
        self.assertFalse(torch._C._cuda_isHistoryEnabled())

    @unittest.skipUnless("host_traces" in str(torch.cuda.memory._record_memory_history.__doc__), "PyTorch before 2.15")
    def test_pinned_memory_is_recorded_too(self):
        self.addCleanup(torch.cuda.memory._record_memory_history, None)
        torch.cuda.memory._record_memory_history(record_pinned_host_memory=True)
        x = torch.empty(3 * MIB, dtype=torch.uint8, pin_memory=True)
        y = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
        snapshot = torch.cuda.memory._snapshot()
        self.assertTrue(any(event["addr"] == x.data_ptr() for event in snapshot["host_traces"]), snapshot["host_traces"])
        self.assertTrue(any(event["addr"] == y.data_ptr() for event in snapshot["device_traces"][0]))

    def test_recorded_stacks_are_lines_of_python(self):
        self.addCleanup(torch.cuda.memory._record_memory_history, None)
        torch.cuda.memory._record_memory_history(stacks="python")
        net = torch.nn.Linear(1024, 1024).cuda()
        net(torch.randn(64, 1024, device="cuda")).square().mean().backward()
        snapshot = torch.cuda.memory._snapshot()
        blocks = {b["address"]: b["frames"] for segment in snapshot["segments"] for b in segment["blocks"]
                  if b["state"] == "active_allocated"}
        here = [frame["name"] for frame in blocks[net.weight.data_ptr()] if frame["filename"] == __file__]
        self.assertEqual(here[0], "test_recorded_stacks_are_lines_of_python")
        self.assertTrue(blocks[net.weight.data_ptr()][0]["filename"].endswith("torch/nn/modules/module.py"))
        self.assertTrue(blocks[net.weight.grad.data_ptr()])  # of a thread of PyTorch's
        if hasattr(torch.cuda.memory, "_allocation_traceback"):  # since PyTorch 2.15
            self.assertEqual(torch.cuda.memory._allocation_traceback(net.weight.data_ptr()), blocks[net.weight.data_ptr()])
        frames = [frame for event in snapshot["device_traces"][0] for frame in event["frames"]]
        self.assertTrue(any(frame["name"] == "forward" and frame["line"] > 0 for frame in frames))

    def test_stacks_and_events_are_those_that_were_asked_for(self):
        self.addCleanup(torch.cuda.memory._record_memory_history, None)

        def take():
            return torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")

        def give(x):
            x.pop()

        for context, taken, given in ("all", True, True), ("alloc", True, False), ("state", False, False):
            torch.cuda.memory._record_memory_history(context=context, stacks="python", skip_actions=["free_requested"])
            x = [take()]
            give(x)
            events = torch.cuda.memory._snapshot()["device_traces"][0]
            names = {frame["name"] for event in events for frame in event["frames"] if frame["filename"] == __file__}
            self.assertEqual(("take" in names, "give" in names), (taken, given), context)
            actions = {event["action"] for event in events}
            self.assertLessEqual({"alloc", "free_completed"}, actions)
            self.assertNotIn("free_requested", actions)
            torch.cuda.memory._record_memory_history(None)


class Programs(unittest.TestCase):
    """What asks more of an allocator than memory."""

    def convolve(self, benchmark):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 64, 7, 2, 3), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3)).cuda()
        x = torch.randn(16, 3, 128, 128, device="cuda", requires_grad=True)
        with torch.backends.cudnn.flags(benchmark=benchmark, allow_tf32=False):
            net(x).square().mean().backward()
        return x.grad

    def test_convolutions_look_for_the_fastest_algorithm(self):
        self.assertTrue(weir.torch.answers())
        torch.testing.assert_close(self.convolve(True), self.convolve(False))

    def test_convolutions_look_for_it_when_memory_is_short(self):
        torch.cuda.empty_cache()
        limit = weir.stats(0)["reserved_bytes"]["all"]["current"] + 160 * MIB
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
        try:
            gradient = self.convolve(True)
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)
        torch.testing.assert_close(gradient, self.convolve(False))

    def test_a_compiled_function_has_the_same_results(self):
        net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.GELU(), torch.nn.Linear(512, 256)).cuda()
        x = torch.randn(64, 256, device="cuda")
        torch.testing.assert_close(torch.compile(net)(x), net(x))


class GraphTrees(unittest.TestCase):
    """torch.compile(mode="reduce-overhead"), which records graphs from checkpoints of one pool."""

    def setUp(self):
        torch._dynamo.reset()
        gc.collect()

    tearDown = setUp

    @staticmethod
    def manager():
        """Of the graphs; None: nothing was recorded."""
        return torch._inductor.cudagraph_trees.get_manager(0, create_if_none_exists=False)

    def test_a_net_is_trained_to_the_same_weights(self):
        def train(compiled):
            torch.manual_seed(0)
            net = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)).cuda()
            call = torch.compile(net, mode="reduce-overhead") if compiled else net
            optimizer = torch.optim.SGD(net.parameters(), 0.1)
            for _ in range(10):
                call(torch.randn(64, 256, device="cuda")).square().mean().backward()
                optimizer.step()
                optimizer.zero_grad()
            return [p.detach() for p in net.parameters()]

        mine = train(True)
        self.assertIsNotNone(self.manager())
        for a, b in zip(mine, train(False)):
            torch.testing.assert_close(a, b)
        weir._library.call("weir_validate", 0)

    def test_graphs_are_recorded_where_others_left_the_pool(self):
        def first(x):
            return torch.nn.functional.gelu(x * 2) @ x

        def second(x):
            return (x + 1).relu() * 3, x.sum()

        def third(x):
            return torch.cat((x, x * 2)), x.t().contiguous() + 1

        functions = first, second, third
        compiled = [torch.compile(f, mode="reduce-overhead") for f in functions]
        x, kept = torch.randn(256, 256, device="cuda"), []
        paths = [(0, 1), (0, 2), (0, 1), (2, 1), (0,), (1, 0), (0, 2), (0, 1)]
        for path in paths * 4:
            torch.compiler.cudagraph_mark_step_begin()
            kept.clear()
            mine = theirs = x
            for i in path:
                mine, theirs = compiled[i](mine), functions[i](theirs)
                kept.append(mine)
                torch.testing.assert_close(mine, theirs, atol=1e-3, rtol=1e-3)
                mine, theirs = (y if isinstance(y, torch.Tensor) else y[0] for y in (mine, theirs))
                mine, theirs = mine[:256], theirs[:256]
        self.assertGreater(self.manager().debug_checkpointing_counter, 0)
        weir._library.call("weir_validate", 0)

    def test_a_mempool_beside_graphs_keeps_its_tensors(self):
        double = torch.compile(lambda x: x * 2, mode="reduce-overhead")
        triple = torch.compile(lambda x: x * 3, mode="reduce-overhead")
        pool, x = torch.cuda.MemPool(), torch.ones(MIB, device="cuda")
        for i in range(8):
            with torch.cuda.use_mem_pool(pool):
                y = torch.full((MIB,), float(i), device="cuda")
            torch.compiler.cudagraph_mark_step_begin()
            self.assertEqual(float((triple if i % 2 else double)(double(x)).sum()), (6 if i % 2 else 4) * MIB)
            self.assertTrue(bool((y == i).all()))

    def test_an_output_of_a_former_step_cannot_be_read(self):
        double = torch.compile(lambda x: x * 2, mode="reduce-overhead")
        x = torch.ones(MIB, device="cuda")
        former = double(x)
        for _ in range(2):  # a run to warm up, and the recording
            torch.compiler.cudagraph_mark_step_begin()
            latter = double(x)
            with self.assertRaisesRegex(RuntimeError, "has been overwritten"):
                former.sum()
            former = latter

    def test_the_memory_of_graphs_goes_back_with_them(self):
        def use():
            double = torch.compile(lambda x: x * 2, mode="reduce-overhead")
            for _ in range(4):
                torch.compiler.cudagraph_mark_step_begin()
                double(torch.ones(64 * MIB, device="cuda"))

        torch.cuda.empty_cache()
        reserved = torch.cuda.memory_reserved()
        for _ in range(3):
            use()
            self.assertIsNotNone(self.manager())
            torch._dynamo.reset()
            gc.collect()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.assertLessEqual(torch.cuda.memory_reserved(), reserved + 64 * MIB)


class Forking(unittest.TestCase):
    def test_a_loader_of_data_may_fork_workers(self):
        loader = torch.utils.data.DataLoader(torch.arange(100), batch_size=10, num_workers=2)
        self.assertEqual(sum(int(batch.cuda().sum()) for batch in loader), 4950)


if __name__ == "__main__":
    unittest.main()
