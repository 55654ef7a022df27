"""What is in PyTorch's tensors, on weir, its work far behind, on a GPU. Run by scripts/clients, a process per file.

Threads fill tensors, look at them on other streams, hand them to each other and let go of them, and nobody waits.
Memory that is used again too early loses its contents.
"""
import random
import threading
import unittest

import torch
import weir.torch

MIB = 1 << 20
WORKERS, STEPS, TENSORS, MARKET = 6, 2000, 10, 12


def setUpModule():
    if not torch.cuda.device_count():
        raise unittest.SkipTest("there is no GPU")
    weir.torch.install()


class Places:
    """Streams, how many elements were lost on each, and tensors that threads leave to each other."""

    def __init__(self):
        self.shared = [torch.cuda.default_stream()] + [torch.cuda.Stream() for _ in range(2)]
        self.market, self.lock = [None] * MARKET, threading.Lock()
        self.lost, self.marks = {}, 0
        for stream in self.shared:
            self.add(stream)

    def add(self, stream):
        with torch.cuda.stream(stream):
            self.lost[stream] = torch.zeros((), dtype=torch.int64, device="cuda")

    def new_stream(self):
        stream = torch.cuda.Stream()
        self.add(stream)
        return stream

    def new_mark(self):
        with self.lock:
            self.marks += 1
            return self.marks

    def all_lost(self):
        torch.cuda.synchronize()
        return sum(int(count) for count in self.lost.values())


class Filled:
    """A tensor that a stream fills."""

    def __init__(self, places, stream, elements):
        self.places, self.stream, self.mark = places, stream, places.new_mark()
        with torch.cuda.stream(stream):
            self.tensor = torch.full((elements,), self.mark, dtype=torch.int32, device="cuda")

    def look(self, stream):
        with torch.cuda.stream(stream):
            self.places.lost[stream] += (self.tensor != self.mark).sum()

    def lend(self, other, recorded=True):
        other.wait_stream(self.stream)
        self.look(other)
        if recorded:
            self.tensor.record_stream(other)


def delay(stream, choose):
    with torch.cuda.stream(stream):
        torch.cuda._sleep(choose.randrange(1_000_000))  # clock cycles


def elements(choose):
    most = choose.choice([16, 4096, 64 << 10, MIB, 2 * MIB, 8 * MIB])
    return most if choose.randrange(3) == 0 else choose.randrange(1, most)


def work(places, seed):
    choose = random.Random(seed)
    streams = places.shared + [places.new_stream()] * len(places.shared)
    held = [None] * TENSORS
    for _ in range(STEPS):
        i, stream = choose.randrange(TENSORS), choose.choice(streams)
        if choose.randrange(8) == 0:
            delay(stream, choose)
        if held[i] is None:
            held[i] = Filled(places, stream, elements(choose))
        elif choose.randrange(4) == 0:
            held[i].lend(stream)
        elif choose.randrange(4) == 0:
            with places.lock:
                j = choose.randrange(MARKET)
                held[i], places.market[j] = places.market[j], held[i]
        else:
            held[i].look(held[i].stream)
            held[i] = None


def capture(places, seed):
    """Graphs with two streams whose tensors are let go of, and used again, within the capture."""
    choose = random.Random(seed)
    main, side = places.new_stream(), places.new_stream()
    for _ in range(STEPS // 50):
        graph, kept = torch.cuda.CUDAGraph(), Filled(places, main, elements(choose))
        with torch.cuda.graph(graph, stream=main, capture_error_mode="thread_local"):
            for _ in range(4):
                filled = Filled(places, main, elements(choose))
                filled.lend(side)
                beside = Filled(places, side, elements(choose))
                beside.look(side)
                filled.look(main)
                kept.look(side)
                main.wait_stream(side)
        with torch.cuda.stream(main):
            for _ in range(3):
                graph.replay()
        main.synchronize()


class Contents(unittest.TestCase):
    def run_workers(self, others):
        places, errors = Places(), []

        def guarded(what, seed):
            try:
                what(places, seed)
            except Exception as error:  # of a thread, where nobody would see it
                errors.append(error)

        tasks = [work] * (WORKERS - len(others)) + others
        threads = [threading.Thread(target=guarded, args=(task, seed)) for seed, task in enumerate(tasks)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(errors, [])
        self.assertEqual(places.all_lost(), 0)
        weir._library.call("weir_validate", 0)

    def test_a_use_that_was_not_recorded_is_found(self):
        places = Places()
        own, other = places.shared[1:]
        filled = Filled(places, own, MIB)
        filled.look(own)  # loads the kernels, for which the driver waits
        own.synchronize()
        with torch.cuda.stream(other):
            torch.cuda._sleep(100_000_000)
        filled.lend(other, recorded=False)
        address = filled.tensor.data_ptr()
        del filled
        again = Filled(places, own, MIB)
        self.assertEqual(again.tensor.data_ptr(), address)
        self.assertEqual(places.all_lost(), MIB)

    def test_contents_stay(self):
        self.run_workers([])

    def test_contents_stay_while_one_thread_captures(self):
        self.run_workers([capture])


if __name__ == "__main__":
    unittest.main()
