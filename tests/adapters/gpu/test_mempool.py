"""A memory pool of PyTorch's own, backed by weir, on a GPU. Run by scripts/clients, a process per file."""
import gc
import unittest

import torch
import weir.torch

MIB = 1 << 20


def setUpModule():
    if not torch.cuda.device_count():
        raise unittest.SkipTest("there is no GPU")


def in_use():
    gc.collect()
    return weir.stats(0)["allocated_bytes"]["all"]["current"]


class MemPool(unittest.TestCase):
    def test_segments_come_from_weir_and_go_back(self):
        torch.ones(1, device="cuda")  # PyTorch's own allocator is in use by now
        before = in_use()
        allocator = weir.torch.pool_allocator()
        pool = torch.cuda.MemPool(allocator.allocator())
        with torch.cuda.use_mem_pool(pool):
            x = torch.full((8 * MIB,), 3.0, device="cuda")
        outside = torch.full((8 * MIB,), 3.0, device="cuda")
        self.assertGreaterEqual(in_use() - before, 32 * MIB)
        self.assertLess(in_use() - before, 64 * MIB)
        self.assertEqual(float((x + outside).sum()), 48 * MIB)
        del x, pool
        gc.collect()
        torch.cuda.empty_cache()
        self.assertEqual(in_use(), before)

    def test_running_out_is_torchs_own_error(self):
        allocator = weir.torch.pool_allocator()
        pool = torch.cuda.MemPool(allocator.allocator())
        with self.assertRaises(torch.cuda.OutOfMemoryError):
            with torch.cuda.use_mem_pool(pool):
                torch.empty(1 << 42, dtype=torch.uint8, device="cuda")

    def test_installing_is_too_late(self):
        torch.ones(1, device="cuda")
        with self.assertRaisesRegex(weir.Error, "comes too late"):
            weir.torch.install()


if __name__ == "__main__":
    unittest.main()
