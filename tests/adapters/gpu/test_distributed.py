"""Jobs of as many processes as there are GPUs, two or more, each with its own, on PyTorch's allocator and on weir: the
losses are the same bit by bit. NCCL's kernels use tensors on streams that PyTorch does not record; it orders them by
other means, which must do for weir, too. Run by scripts/clients. The environment is passed on: WEIR_MEMORY_LIMIT makes
memory short.
"""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist
from torch import nn

WORLD, STEPS, WIDTH = max(2, torch.cuda.device_count()), 20, 1024


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def make_net(layers=12):
    torch.manual_seed(0)
    return nn.Sequential(*[Layer() for _ in range(layers)]).cuda()


def rows(dice):
    return int(torch.randint(64, 3000, (1,), generator=dice))


def train(net, optimizer, rank):
    """No step waits for the device, so that kernels of many are queued while tensors come and go."""
    dice, losses = torch.Generator().manual_seed(rank), []
    for _ in range(STEPS):
        loss = net(torch.randn(rows(dice), WIDTH, device="cuda")).float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(loss.detach())
    return losses


def replicas(rank):
    net = nn.parallel.DistributedDataParallel(make_net(), device_ids=[rank], bucket_cap_mb=8)
    return train(net, torch.optim.AdamW(net.parameters()), rank)


def shards(rank):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    net, policy = make_net(), MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in net:
        fully_shard(layer, mp_policy=policy)
    fully_shard(net, mp_policy=policy)
    return train(net, torch.optim.AdamW(net.parameters()), rank)


def graph(rank):
    net, x, losses = make_net(4), torch.empty(512, WIDTH, device="cuda"), []

    def step():
        y = net(x)
        dist.all_reduce(y)
        return y.square().mean()

    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.zero_()
            for _ in range(3):
                step()
        torch.cuda.current_stream().wait_stream(side)
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            loss = step()
        torch.manual_seed(rank)
        for _ in range(STEPS):
            x.normal_()
            captured.replay()
            losses.append(loss.clone())
            torch.empty(WIDTH * WIDTH, device="cuda").fill_(7)  # somebody else's work on what is free
    return losses


def experts(rank):
    """Tokens go to the process of their expert and back, as many as there happen to be."""
    net, dice, losses = make_net(2), torch.Generator().manual_seed(5), []
    for _ in range(STEPS):
        sizes = [[rows(dice) for _ in range(WORLD)] for _ in range(WORLD)]
        to, back = sizes[rank], [sizes[k][rank] for k in range(WORLD)]
        tokens = torch.randn(sum(to), WIDTH, device="cuda")
        mine = torch.empty(sum(back), WIDTH, device="cuda")
        work = dist.all_to_all_single(mine, tokens, back, to, async_op=True)
        meanwhile = net(torch.randn(rows(dice), WIDTH, device="cuda")).mean()
        work.wait()
        done, returned = net(mine).detach(), torch.empty_like(tokens)
        dist.all_to_all_single(returned, done, to, back)
        (returned.square().mean() + meanwhile).backward()
        losses.append((returned.mean() + meanwhile).detach())
    return losses


def stages(rank):
    """Each process has a part of a net, and sends the next one what comes out, which it drops at once."""
    net, dice, losses = make_net(4), torch.Generator().manual_seed(5), []
    with torch.no_grad():
        for _ in range(STEPS):
            sizes, work = [rows(dice) for _ in range(4)], []
            for size in sizes:
                x = torch.randn(size, WIDTH, device="cuda")
                if rank > 0:
                    dist.irecv(x, rank - 1).wait()
                x = net(x)
                if rank + 1 < WORLD:
                    work.append(dist.isend(x, rank + 1))
                else:
                    losses.append(x.mean())
            for sent in work:
                sent.wait()
    return losses


JOBS = (replicas, shards, graph, experts, stages)


def work(allocator, rank, meeting):
    if allocator == "weir":
        import weir.torch
        weir.torch.install()
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    dist.init_process_group("nccl", init_method=f"file://{meeting}", rank=rank, world_size=WORLD, device_id=device)
    results = {}
    for job in JOBS:
        torch.cuda.reset_peak_memory_stats()
        torch.manual_seed(rank)
        losses = [loss.item() for loss in job(rank)]
        results[job.__name__] = {"losses": losses, "reserved": torch.cuda.max_memory_reserved(),
                                 "allocated": torch.cuda.max_memory_allocated()}
        torch.cuda.empty_cache()
    dist.destroy_process_group()
    print(json.dumps(results))


def run(allocator):
    with tempfile.TemporaryDirectory() as folder:
        environment = dict(os.environ, CUBLAS_WORKSPACE_CONFIG=":4096:8")
        workers = [
            subprocess.Popen([sys.executable, __file__, allocator, str(rank), os.path.join(folder, "meeting")],
                             env=environment, stdout=subprocess.PIPE, text=True) for rank in range(WORLD)]
        try:
            outputs = [worker.communicate(timeout=55)[0] for worker in workers]
        finally:
            for worker in workers:
                worker.kill()
        if any(worker.returncode for worker in workers):
            raise AssertionError(f"{allocator}: exit codes {[worker.returncode for worker in workers]}")
        return [json.loads(output.splitlines()[-1]) for output in outputs]


@unittest.skipIf(torch.cuda.device_count() < WORLD or not dist.is_nccl_available(), "there are no two GPUs with NCCL")
class Distributed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.native, cls.weir = run("native"), run("weir")
        for job in cls.native[0]:
            peaks = [f"{of[0][job]['reserved'] / 2**20:.0f} of {of[0][job]['allocated'] / 2**20:.0f}"
                     for of in (cls.native, cls.weir)]
            print(f"{job}: MiB reserved of allocated: native {peaks[0]}, weir {peaks[1]}", file=sys.stderr)

    def check(self, job):
        for native, weir in zip(self.native, self.weir):
            self.assertEqual(native[job]["losses"], weir[job]["losses"])

    def test_replicas_have_the_losses_of_pytorchs_allocator(self):
        self.check("replicas")

    def test_shards_have_the_losses_of_pytorchs_allocator(self):
        self.check("shards")

    def test_collectives_in_a_graph_have_the_losses_of_pytorchs_allocator(self):
        self.check("graph")

    def test_experts_have_the_losses_of_pytorchs_allocator(self):
        self.check("experts")

    def test_stages_have_the_losses_of_pytorchs_allocator(self):
        self.check("stages")


def work_in_registered_memory(meeting):
    import weir.torch
    weir.torch.install()
    device = torch.device("cuda", 0)
    dist.init_process_group("nccl2", init_method=f"file://{meeting}", rank=0, world_size=1, device_id=device)
    pool = torch.cuda.MemPool(dist.group.WORLD._get_backend(device).mem_allocator)
    with torch.cuda.use_mem_pool(pool):
        x = torch.ones(1000, device=device)
    dist.all_reduce(x)
    print("segment", hex(pool.snapshot()[0]["address"]), "sum", float(x.sum()))
    dist.destroy_process_group()


@unittest.skipUnless(torch.cuda.is_available() and hasattr(dist, "ProcessGroupNCCL2"), "since PyTorch 2.14")
class Registered(unittest.TestCase):
    def test_segments_of_nccls_own_allocator_are_registered_with_it(self):
        with tempfile.TemporaryDirectory() as folder:
            environment = dict(os.environ, NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="REG")
            output = subprocess.run([sys.executable, __file__, "registered", os.path.join(folder, "meeting")], env=environment,
                                    stdout=subprocess.PIPE, text=True, check=True, timeout=55).stdout
        found = re.search("segment (0x[0-9a-f]+) sum 1000.0", output)
        self.assertRegex(output, f"register comm .* buffer {found.group(1)} ")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "registered":
        work_in_registered_memory(sys.argv[2])
    elif len(sys.argv) == 4:
        work(sys.argv[1], int(sys.argv[2]), sys.argv[3])
    else:
        unittest.main()
