"""Tensors for other processes (torch.multiprocessing), with weir installed in both. Run by scripts/clients."""
import gc
import time
import unittest

import torch
import torch.multiprocessing as multiprocessing
import weir.torch

MIB = 1 << 20
SECONDS = 60


def total(x):
    return float(x.double().sum())


def double(x):
    x.mul_(2)
    torch.cuda.synchronize()


def total_on_the_first(x):
    return total(x.to("cuda:0"))


def make(count, device="cuda:0"):
    return torch.arange(count, device=device, dtype=torch.float32)


def run_net(parameters, x):
    net = make_net()
    net.load_state_dict(parameters, assign=True)
    return net(x).detach().cpu()


def make_net():
    return torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.ReLU(), torch.nn.Linear(2048, 512)).cuda()


def work(install, tasks, results):
    """The other process: calls what it is told to call, and keeps the arguments that it is told to keep. None is the
    end."""
    if install:
        weir.torch.install()
    kept = []

    def do():
        function, keep, arguments = tasks.get()
        if function is None:
            return False
        results.put((True, function(*arguments)))
        kept[:] = [arguments] if keep else []
        return True

    goes_on = True
    while goes_on:
        try:
            goes_on = do()
        except Exception as error:
            results.put((False, str(error)))
        gc.collect()


class Worker:
    def __init__(self, install=True):
        context = multiprocessing.get_context("spawn")
        self.tasks, self.results = context.Queue(), context.Queue()
        self.process = context.Process(target=work, args=(install, self.tasks, self.results), daemon=True)
        self.process.start()

    def call(self, function, *arguments, keep=False):
        self.tasks.put((function, keep, arguments))
        good, result = self.results.get(timeout=SECONDS)
        if not good:
            raise RuntimeError(result)
        return result

    def end(self):
        self.tasks.put((None, False, ()))
        self.process.join(SECONDS)


def setUpModule():
    global worker
    if not torch.cuda.device_count():
        raise unittest.SkipTest("there is no GPU")
    weir.torch.install()
    worker = Worker()


def tearDownModule():
    worker.end()


def in_use():
    gc.collect()
    torch.cuda.ipc_collect()
    return weir.stats(0)["allocated_bytes"]["all"]["current"]


class Sharing(unittest.TestCase):
    def setUp(self):
        worker.call(total, torch.ones(1))  # it forgets what it has kept
        time.sleep(0.5)

    def assertInUse(self, bytes_):
        """Soon: the other process lets go in its own time."""
        end = time.monotonic() + SECONDS
        while in_use() != bytes_ and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual(in_use(), bytes_)

    def test_another_process_reads_and_writes_a_tensor(self):
        for count in 1, 1000, MIB, 70 * MIB:
            with self.subTest(count=count):
                x = torch.ones(count, device="cuda")
                self.assertEqual(worker.call(total, x), count)
                worker.call(double, x)
                self.assertEqual(total(x), 2 * count)

    def test_views_of_a_tensor_are_the_same_memory(self):
        x = torch.zeros(1000, device="cuda")
        worker.call(double, x[100:200].add_(1))
        self.assertEqual(total(x), 200)

    def test_a_tensor_comes_from_another_process(self):
        for count in 10, 30 * MIB:
            x = worker.call(make, count)
            self.assertTrue(torch.equal(x, torch.arange(count, device="cuda", dtype=torch.float32)))
            self.assertTrue(torch.equal(x.clone(), x))
            del x

    def test_a_net_runs_on_parameters_of_another_process(self):
        net, x = make_net(), torch.randn(64, 512, device="cuda")
        self.assertTrue(torch.equal(worker.call(run_net, net.state_dict(), x), net(x).detach().cpu()))

    def test_memory_comes_back_when_the_other_process_has_let_go(self):
        before = in_use()
        x = torch.ones(70 * MIB, device="cuda")
        worker.call(total, x, keep=True)
        del x
        self.assertEqual(in_use(), before + 280 * MIB)
        worker.call(total, torch.ones(1, device="cuda"))  # and forgets what it has kept
        self.assertInUse(before)

    def test_many_tensors_leave_nothing_behind(self):
        x = torch.ones(MIB, device="cuda")
        worker.call(total, x)
        torch.cuda.synchronize()
        before, device = in_use(), torch.cuda.mem_get_info()[0]
        for _ in range(300):
            worker.call(total, torch.ones(1000, device="cuda"))
        self.assertInUse(before)
        self.assertLess(device - torch.cuda.mem_get_info()[0], 64 * MIB)

    def test_short_memory_is_had_from_what_the_other_process_has_let_go_of(self):
        x = torch.ones(250 * MIB, device="cuda")
        worker.call(total, x, keep=True)
        torch.cuda.empty_cache()
        limit = weir.stats(0)["reserved_bytes"]["all"]["current"] + 100 * MIB
        del x
        worker.call(total, torch.ones(1, device="cuda"))  # and forgets what it has kept
        time.sleep(1)  # it lets go in its own time
        torch.cuda.set_per_process_memory_fraction(limit / torch.cuda.mem_get_info()[1])
        try:
            torch.empty(800 * MIB, dtype=torch.uint8, device="cuda")
        finally:
            torch.cuda.set_per_process_memory_fraction(1.0)

    @unittest.skipIf(torch.cuda.device_count() < 2, "there is one GPU")
    def test_a_tensor_of_the_second_device_is_there_in_the_other_process(self):
        x = torch.ones(70 * MIB, device="cuda:1")
        self.assertEqual(worker.call(total, x), 70 * MIB)
        self.assertEqual(worker.call(total_on_the_first, x), 70 * MIB)
        y = worker.call(make, 1000, "cuda:1")
        self.assertEqual(y.device, x.device)
        self.assertTrue(torch.equal(y.cpu(), torch.arange(1000, dtype=torch.float32)))

    def test_a_process_without_weir_is_refused(self):
        other = Worker(install=False)
        try:
            with self.assertRaisesRegex(RuntimeError, "future version of torch"):
                other.call(total, torch.ones(10, device="cuda"))
            with self.assertRaisesRegex(RuntimeError, "was not made by weir"):
                other.call(make, 10)
        finally:
            other.process.terminate()


if __name__ == "__main__":
    unittest.main()
