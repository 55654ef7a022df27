"""The jobs of the campaign. Each is a class: made with a device and a size ("tiny", "quick" or "full"), then step(i) is
called `steps` times and gives a number that depends on all that was computed, the loss where there is one. Equal seeds
give equal numbers, whatever the allocator."""
import threading

import torch
import torch.nn.functional as F

from models import Classifier, Detector, Gpt, GraphSage

TINY_GPT = dict(vocabulary=500, context=128, layers=2, width=64, heads=4)


class Job:
    steps = {"tiny": 3, "quick": 12, "full": 60}

    def __init__(self, device: torch.device, size: str) -> None:
        self.device, self.size, self.tiny = device, size, size == "tiny"
        self.random = torch.Generator(device).manual_seed(2)  # data
        self.shapes = torch.Generator("cpu").manual_seed(3)       # what varies from step to step
        with self.device:
            self.setup()

    def setup(self) -> None:
        """Makes models on the device, where that takes no time."""
        raise NotImplementedError

    def step(self, i: int) -> float:
        raise NotImplementedError

    def between(self, least: int, most: int, multiple: int = 1) -> int:
        return int(torch.randint(least // multiple, most // multiple + 1, (1,), generator=self.shapes, device="cpu")) * multiple

    def normal(self, *shape: int) -> torch.Tensor:
        return torch.randn(*shape, device=self.device, generator=self.random)

    def numbers(self, below: int, *shape: int) -> torch.Tensor:
        return torch.randint(below, shape, device=self.device, generator=self.random)

    def half(self, dtype: torch.dtype):
        return torch.autocast(self.device.type, torch.bfloat16 if self.device.type == "cpu" else dtype)

    def learn(self, optimizer, loss: torch.Tensor) -> float:
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()


class ResNet50Amp(Job):
    """ResNet-50, half precision with scaled gradients, fixed shapes."""

    def setup(self) -> None:
        shape = dict(depths=(1, 1, 1, 1), width=8) if self.tiny else {}
        self.batch, self.side = (2, 64) if self.tiny else (64, 224)
        self.model = Classifier(1000, **shape)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.device.type == "cuda")

    def step(self, i: int) -> float:
        images, labels = self.normal(self.batch, 3, self.side, self.side), self.numbers(1000, self.batch)
        with self.half(torch.float16):
            loss = F.cross_entropy(self.model(images), labels)
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad(set_to_none=True)
        return loss.item()


class Gpt2Varlen(Job):
    """GPT-2, with a new sequence length in each step."""
    steps = {"tiny": 3, "quick": 16, "full": 100}

    def setup(self) -> None:
        self.model = Gpt(**(TINY_GPT if self.tiny else {}))
        self.batch, self.longest = (2, 96) if self.tiny else (8, 1024)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)

    def step(self, i: int) -> float:
        tokens = self.numbers(500, self.batch, self.between(self.longest // 8, self.longest))
        with self.half(torch.bfloat16):
            loss = self.model.loss(tokens)
        return self.learn(self.optimizer, loss)


class Gpt2LoraRecompute(Job):
    """GPT-2 whose adapters alone learn; activations are recomputed for the gradient; lengths vary."""
    steps = {"tiny": 3, "quick": 8, "full": 60}

    def setup(self) -> None:
        self.model = Gpt(rank=16, recompute=True, **(TINY_GPT if self.tiny else {}))
        self.batch, self.longest = (2, 96) if self.tiny else (16, 1024)
        learning = [p for p in self.model.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(learning, lr=1e-4)

    def step(self, i: int) -> float:
        tokens = self.numbers(500, self.batch, self.between(self.longest // 2, self.longest))
        with self.half(torch.bfloat16):
            loss = self.model.loss(tokens)
        return self.learn(self.optimizer, loss)


class GraphSageJob(Job):
    """GraphSAGE on a random graph: each step samples neighbourhoods of another size."""
    steps = {"tiny": 3, "quick": 25, "full": 100}

    def setup(self) -> None:
        self.nodes, self.features, self.fan = (1000, 16, (4, 4)) if self.tiny else (400_000, 256, (10, 15))
        self.table = self.normal(self.nodes, self.features)
        self.labels = self.numbers(40, self.nodes)
        self.model = GraphSage(self.features, 16 if self.tiny else 512, 40, 2)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-3)

    def step(self, i: int) -> float:
        seeds = self.between(20, 60) if self.tiny else self.between(2000, 12000)
        inner = self.numbers(self.nodes, seeds, self.fan[0])
        ids, places = torch.cat((torch.arange(seeds, device=self.device), inner.flatten())).unique(return_inverse=True)
        middle = self.numbers(self.nodes, ids.shape[0], self.fan[1])
        everybody, outer = torch.cat((ids, middle.flatten())).unique(return_inverse=True)
        rows = self.table[torch.cat((ids, everybody))]  # nodes that go on come first
        samples = [outer[ids.shape[0]:].view(-1, self.fan[1]) + ids.shape[0], places[seeds:].view(-1, self.fan[0])]
        loss = F.cross_entropy(self.model(rows, samples), self.labels[:seeds])
        return self.learn(self.optimizer, loss)


class Detection(Job):
    """A detector on images of varying sizes."""
    steps = {"tiny": 3, "quick": 20, "full": 80}

    def setup(self) -> None:
        shape = dict(depths=(1, 1, 1, 1), width=8, features=16) if self.tiny else {}
        self.least, self.most = (64, 128) if self.tiny else (480, 1344)
        self.model = Detector(80, **shape)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)

    def step(self, i: int) -> float:
        images = self.normal(2, 3, self.between(self.least, self.most, 32), self.between(self.least, self.most, 32))
        with self.half(torch.bfloat16):
            outputs = self.model(images)
        loss = sum(F.softplus(o[:, :80].float()).mean() + o[:, 80:].float().abs().mean() for o in outputs)
        return self.learn(self.optimizer, loss)


class Serving(Job):
    """Decoding with key-value caches that grow by a token per step; requests come and go."""
    steps = {"tiny": 6, "quick": 40, "full": 400}

    def setup(self) -> None:
        shape = TINY_GPT if self.tiny else dict(vocabulary=32000, context=4096, layers=16, width=2048, heads=16)
        torch.set_default_dtype(torch.float32 if self.tiny else torch.bfloat16)
        self.model = Gpt(**shape).eval()
        torch.set_default_dtype(torch.float32)
        self.vocabulary, self.groups = shape["vocabulary"], []
        self.most = 3 if self.tiny else 12

    def admit(self) -> None:
        """A group of requests of equal length, whose prompts are computed at once."""
        length = self.between(4, 32) if self.tiny else self.between(64, 1024)
        tokens = self.numbers(self.vocabulary, self.between(1, 4), length)
        hidden, cache = self.model.hidden(tokens)
        self.groups.append([length, length + (self.between(1, 8) if self.tiny else self.between(8, 256)), cache,
                            self.choose(hidden)])

    def choose(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden[:, -1:], self.model.tokens.weight).argmax(-1)

    @torch.no_grad()
    def step(self, i: int) -> float:
        while len(self.groups) < self.most:
            self.admit()
        total = 0
        for group in self.groups:
            length, _, cache, token = group
            hidden, group[2] = self.model.hidden(token, length, cache)
            group[0], group[3] = length + 1, self.choose(hidden)
            total += int(group[3].sum())
        self.groups = [group for group in self.groups if group[0] < group[1]]
        return float(total)


class Threads(Job):
    """Inference by eight threads, each with a stream and small kernels of its own."""
    steps = {"tiny": 2, "quick": 10, "full": 40}
    threads = 8
    processors = 8  # one for each thread

    def setup(self) -> None:
        self.rounds, width = (2, 16) if self.tiny else (60, 256)
        self.model = torch.nn.Sequential(*[layer for _ in range(6) for layer in (
            torch.nn.Linear(width, width), torch.nn.LayerNorm(width), torch.nn.GELU())]).eval()
        self.inputs = [self.normal(32, width) for _ in range(self.threads)]
        self.gpu = self.device.type == "cuda"
        self.streams = [torch.cuda.Stream() if self.gpu else None for _ in range(self.threads)]

    def work(self, i: int, step: int, results, failures) -> None:
        try:
            if self.gpu:
                torch.cuda.set_device(self.device)
            with torch.cuda.stream(self.streams[i]), torch.no_grad():
                total = 0.0
                for j in range(self.rounds):
                    rows = self.model(self.inputs[i][:8 + (i + j + step) % 24])
                    total += float(rows.double().sum()) if j % 20 == 0 else 0.0
                results[i] = total
        except Exception as error:  # reported to the thread that waits
            failures.append(error)

    def step(self, i: int) -> float:
        results, failures = [0.0] * self.threads, []
        if self.gpu:
            torch.cuda.synchronize()  # the inputs were made on another stream
        threads = [threading.Thread(target=self.work, args=(t, i, results, failures)) for t in range(self.threads)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if failures:
            raise failures[0]
        return sum(results)


class GraphStep(Job):
    """A training step captured in a graph and replayed, with eager work beside it that must not disturb it."""
    steps = {"quick": 40, "full": 200}

    def setup(self) -> None:
        self.model = Gpt(vocabulary=8000, context=257, layers=4, width=512, heads=8)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4, capturable=True)
        self.tokens = self.numbers(8000, 8, 257)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self.captured()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.loss = self.captured()

    def captured(self) -> torch.Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.model.loss(self.tokens)
        loss.backward()
        self.optimizer.step()
        return loss

    def step(self, i: int) -> float:
        self.tokens.copy_(self.numbers(8000, 8, 257))
        self.graph.replay()
        eager = self.normal(self.between(100, 2000), 1000)
        loss, beside = self.loss.item(), float((eager @ eager.T).double().sum())
        if i % 10 == 9:
            torch.cuda.empty_cache()
        return loss + beside * 1e-9


class Compiled(Job):
    """Training under torch.compile(mode="reduce-overhead"): graphs for four lengths, recorded from checkpoints of one pool,
    with eager work beside them."""
    steps = {"quick": 40, "full": 200}
    lengths = 65, 129, 193, 257

    def setup(self) -> None:
        self.model = Gpt(vocabulary=8000, context=257, layers=4, width=512, heads=8)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.loss = torch.compile(self.model.loss, mode="reduce-overhead", dynamic=False)

    def step(self, i: int) -> float:
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.numbers(8000, 8, self.lengths[self.between(0, len(self.lengths) - 1)]))
        loss.backward()
        self.optimizer.step()
        eager = self.normal(self.between(100, 2000), 1000)
        return loss.item() + float((eager @ eager.T).double().sum()) * 1e-9


JOBS = {"resnet50_amp": ResNet50Amp, "gpt2_varlen": Gpt2Varlen, "gpt2_lora_recompute": Gpt2LoraRecompute,
        "graphsage": GraphSageJob, "detection": Detection, "serving_kv": Serving, "threads8": Threads,
        "graph_step": GraphStep, "compiled": Compiled}
