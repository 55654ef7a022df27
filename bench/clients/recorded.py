"""Jobs that are only recorded (scripts/record), to see how policies do on jobs that they were not tuned for. The classes are as
in jobs.py. In each job sizes depend on data, phases alternate, or models come and go."""
import torch
import torch.nn.functional as F
from torch import nn

from jobs import Job, TINY_GPT
from models import Classifier, Gpt, ResNet, doubled


class Denoiser(nn.Module):
    """A U-net with two convolutions per level, and attention at the lowest."""

    def __init__(self, width: int, levels: int) -> None:
        super().__init__()

        def block(inputs: int, outputs: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU(),
                                 nn.Conv2d(outputs, outputs, 3, padding=1), nn.GroupNorm(8, outputs), nn.SiLU())

        sizes = [width << i for i in range(levels)]
        self.first, self.last = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, 4, 3, padding=1)
        self.down = nn.ModuleList(block(a, b) for a, b in zip([width] + sizes, sizes))
        self.up = nn.ModuleList(block(2 * b, a) for a, b in zip([width] + sizes, sizes))
        self.attention = nn.MultiheadAttention(sizes[-1], 8, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x, kept = self.first(x), []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        flat = x.flatten(2).transpose(1, 2)
        x = x + self.attention(flat, flat, flat)[0].transpose(1, 2).reshape(x.shape)
        for block in reversed(self.up):
            x = block(torch.cat((doubled(x), kept.pop()), 1))
        return self.last(x)


class Diffusion(Job):
    """Training on images of a few shapes, chosen anew for each step, with a running mean of the weights."""
    steps = {"tiny": 3, "quick": 60}

    def setup(self) -> None:
        self.model = Denoiser(8 if self.tiny else 128, 2 if self.tiny else 4)
        self.mean = [p.detach().clone() for p in self.model.parameters()]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        self.unit = 4 if self.tiny else 16

    def step(self, i: int) -> float:
        side = self.between(2, 6)
        images = self.normal(2 if self.tiny else 8, 4, side * self.unit, (8 - side) * self.unit)
        with self.half(torch.bfloat16):
            loss = (self.model(images + self.normal(*images.shape)) - images).square().mean()
        result = self.learn(self.optimizer, loss)
        torch._foreach_lerp_(self.mean, [p.detach() for p in self.model.parameters()], 0.01)
        return result


class Experts(Job):
    """A mixture of experts: how many tokens each one gets depends on the data."""
    steps = {"tiny": 3, "quick": 60}

    def setup(self) -> None:
        width, experts, layers = (32, 4, 2) if self.tiny else (1024, 16, 6)
        self.tokens = nn.Embedding(1000, width)
        self.gates = nn.ModuleList(nn.Linear(width, experts) for _ in range(layers))
        self.experts = nn.ModuleList(nn.ModuleList(nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)) for _ in range(experts)) for _ in range(layers))
        self.head = nn.Linear(width, 1000)
        parts = nn.ModuleList((self.tokens, self.gates, self.experts, self.head))
        self.optimizer = torch.optim.AdamW(parts.parameters(), lr=1e-3)

    def step(self, i: int) -> float:
        tokens = self.numbers(1000, self.between(20, 40) if self.tiny else self.between(8000, 24000))
        with self.half(torch.bfloat16):
            x = self.tokens(tokens)
            for gate, experts in zip(self.gates, self.experts):
                weights, chosen = gate(x).softmax(-1).topk(2)
                y = torch.zeros_like(x)
                for k, expert in enumerate(experts):
                    rows, which = (chosen == k).nonzero(as_tuple=True)
                    y = y.index_add(0, rows, expert(x[rows]).to(y.dtype) * weights[rows, which, None].to(y.dtype))
                x = F.layer_norm(x + y, x.shape[-1:])
            loss = F.cross_entropy(self.head(x).float(), tokens.roll(1))
        return self.learn(self.optimizer, loss)


class Translation(Job):
    """An encoder and a decoder; batches have a fixed number of tokens, and each step sums the gradients of four."""
    steps = {"tiny": 3, "quick": 30}

    def setup(self) -> None:
        self.words, width = (100, 32) if self.tiny else (32000, 512)
        self.embedding = nn.Embedding(self.words, width)
        self.model = nn.Transformer(width, 8, 2 if self.tiny else 6, 2 if self.tiny else 6, 4 * width, batch_first=True)
        parts = nn.ModuleList((self.embedding, self.model))
        self.optimizer = torch.optim.Adam(parts.parameters(), lr=1e-4)

    def step(self, i: int) -> float:
        total = 0.0
        for _ in range(4):
            length = self.between(4, 12) if self.tiny else self.between(10, 200)
            rows = max(1, (40 if self.tiny else 12000) // length)
            source, target = self.numbers(self.words, rows, length), self.numbers(self.words, rows, self.between(length // 2, length) + 1)
            with self.half(torch.bfloat16):
                hidden = self.model(self.embedding(source), self.embedding(target[:, :-1]))
                logits = F.linear(hidden, self.embedding.weight)
                loss = F.cross_entropy(logits.float().flatten(0, 1), target[:, 1:].flatten(), label_smoothing=0.1)
            loss.backward()
            total += loss.item()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return total


class Speech(Job):
    """Convolutions and a recurrent network over sound of varying length."""
    steps = {"tiny": 3, "quick": 40}

    def setup(self) -> None:
        width = 16 if self.tiny else 512
        self.front = nn.Sequential(nn.Conv1d(80, width, 5, 2, 2), nn.GELU(), nn.Conv1d(width, width, 5, 2, 2), nn.GELU())
        self.body, self.head = nn.LSTM(width, width, 3, bidirectional=True, batch_first=True), nn.Linear(2 * width, 64)
        self.optimizer = torch.optim.Adam(nn.ModuleList((self.front, self.body, self.head)).parameters(), lr=1e-4)

    def step(self, i: int) -> float:
        sound = self.normal(2 if self.tiny else 32, 80, self.between(40, 80) if self.tiny else self.between(300, 1600))
        logits = self.head(self.body(self.front(sound).transpose(1, 2))[0]).log_softmax(-1)
        lengths = torch.full((sound.shape[0],), logits.shape[1])
        labels = 1 + self.numbers(63, sound.shape[0], max(1, logits.shape[1] // 6))
        loss = F.ctc_loss(logits.transpose(0, 1), labels, lengths, torch.full_like(lengths, labels.shape[1]))
        return self.learn(self.optimizer, loss)


class Points(Job):
    """Point clouds gathered into ever larger voxels, whose number depends on where the points are."""
    steps = {"tiny": 3, "quick": 60}

    def setup(self) -> None:
        widths = (4, 8, 16) if self.tiny else (64, 128, 256, 512)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(3 + a, b), nn.BatchNorm1d(b), nn.ReLU(), nn.Linear(b, b))
                                    for a, b in zip((0,) + widths, widths))
        self.head = nn.Linear(sum(widths), 20)
        self.optimizer = torch.optim.Adam(nn.ModuleList((self.layers, self.head)).parameters(), lr=1e-3)

    def step(self, i: int) -> float:
        count = self.between(200, 400) if self.tiny else self.between(100_000, 600_000)
        places = self.normal(count, 3) * (1 + i % 3)
        x, back, where, found, size = places.new_zeros(count, 0), None, places, [], 0.05
        for layer in self.layers:
            x = layer(torch.cat((where, x), 1))
            found.append(x if back is None else x[back])
            cells, inverse = (where / size).floor().long().unique(dim=0, return_inverse=True)
            pooled = x.new_zeros(cells.shape[0], x.shape[1]).index_add(0, inverse, x)
            back, x, where, size = inverse if back is None else inverse[back], pooled, cells * size, size * 2
        logits = self.head(torch.cat(found, 1))
        return self.learn(self.optimizer, F.cross_entropy(logits, (places[:, 0] > 0).long()))


class Rollouts(Job):
    """A policy plays and keeps its observations step by step, then learns from all of them in shuffled parts."""
    steps = {"tiny": 2, "quick": 12}

    def setup(self) -> None:
        self.count, self.long, self.side = (4, 5, 16) if self.tiny else (64, 128, 64)
        width = 8 if self.tiny else 32
        self.body = nn.Sequential(nn.Conv2d(4, width, 4, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 4, 2, 1), nn.ReLU(),
                                  nn.Flatten(), nn.Linear(2 * width * (self.side // 4) ** 2, 512), nn.ReLU(), nn.Linear(512, 7))
        self.optimizer = torch.optim.Adam(self.body.parameters(), lr=1e-4)

    def step(self, i: int) -> float:
        seen, done, gained = [], [], []
        with torch.no_grad():
            for _ in range(self.long + self.between(0, self.long)):
                view = self.normal(self.count, 4, self.side, self.side)
                logits = self.body(view)[:, :6]
                seen.append(view)
                done.append(torch.multinomial(logits.softmax(-1), 1, generator=self.random))
                gained.append(logits.amax(1))
        views, acts, gains = torch.cat(seen), torch.cat(done), torch.cat(gained)
        del seen, done, gained
        total = 0.0
        for _ in range(3):
            for part in torch.randperm(len(views), device=self.device, generator=self.random).split(self.count * 16):
                out = self.body(views[part])
                chance = out[:, :6].log_softmax(-1).gather(1, acts[part])[:, 0]
                total = self.learn(self.optimizer, (out[:, 6] - gains[part]).square().mean() - (chance * gains[part]).mean())
        return total


class Sweep(Job):
    """Models of different widths and depths, each trained for a few steps and then dropped."""
    steps = {"tiny": 3, "quick": 12}

    def setup(self) -> None:
        pass

    def step(self, i: int) -> float:
        width = 16 * self.between(1, 3) if self.tiny else 128 * self.between(3, 10)
        with self.device:
            model = Gpt(500, 64, 2, width, 4) if self.tiny else Gpt(8000, 512, self.between(4, 16), width, 8)
        optimizer, total = torch.optim.AdamW(model.parameters(), lr=1e-4), 0.0
        rows = self.between(1, 3) if self.tiny else self.between(4, 16)
        for _ in range(2 if self.tiny else 5):
            with self.half(torch.bfloat16):
                loss = model.loss(self.numbers(500, rows, 33 if self.tiny else 385))
            total = self.learn(optimizer, loss)
        return total


class Evaluating(Job):
    """Training on crops of two sizes; every tenth step is followed by an evaluation on whole images in larger batches."""
    steps = {"tiny": 3, "quick": 50}

    def setup(self) -> None:
        self.model = Classifier(100, **(dict(depths=(1, 1, 1, 1), width=8) if self.tiny else {}))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01, momentum=0.9)
        self.batch, self.unit = (2, 16) if self.tiny else (32, 32)

    def step(self, i: int) -> float:
        with self.half(torch.bfloat16):
            outputs = [self.model(self.normal(self.batch, 3, n * self.unit, n * self.unit)) for n in (7, 7, 3, 3, 3)]
            loss = sum(F.cross_entropy(o, self.numbers(100, self.batch)) for o in outputs)
        result = self.learn(self.optimizer, loss)
        if i % 10 == 1:
            self.model.eval()
            with torch.no_grad():
                kept = [self.model(self.normal(4 * self.batch, 3, self.between(7, 12) * self.unit, 8 * self.unit)) for _ in range(6)]
                result += float(torch.cat(kept).amax())
            self.model.train()
        return result


class Adversaries(Job):
    """Two networks against each other, on images that grow as training goes on."""
    steps = {"tiny": 3, "quick": 60}

    def setup(self) -> None:
        width = 8 if self.tiny else 256
        self.width = width
        self.make = nn.ModuleList(nn.Sequential(nn.Conv2d(width, width, 3, padding=1), nn.LeakyReLU(0.2)) for _ in range(7))
        self.paint = nn.Conv2d(width, 3, 1)
        self.judge = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.LeakyReLU(0.2), *[layer for _ in range(2) for layer in (
            nn.Conv2d(width, width, 3, 2, 1), nn.LeakyReLU(0.2))], nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1))
        self.optimizers = [torch.optim.Adam(m.parameters(), lr=1e-4)
                           for m in (nn.ModuleList((self.make, self.paint)), self.judge)]

    def images(self, levels: int, batch: int) -> torch.Tensor:
        x = self.normal(batch, self.width, 4, 4)
        for layer in self.make[:levels]:
            x = layer(doubled(x))
        return self.paint(x)

    def step(self, i: int) -> float:
        levels = 2 if self.tiny else 3 + i // 20
        batch = 2 if self.tiny else 128 >> (i // 20)
        real = self.normal(batch, 3, 4 << levels, 4 << levels)
        made = self.images(levels, batch)
        x = real.requires_grad_(i % 4 == 0)
        verdict = self.judge(x)
        loss = F.softplus(self.judge(made.detach())).mean() + F.softplus(-verdict).mean()
        if i % 4 == 0:  # a gradient of a gradient
            slope, = torch.autograd.grad(verdict.sum(), x, create_graph=True)
            loss = loss + slope.square().sum((1, 2, 3)).mean()
        total = self.learn(self.optimizers[1], loss)
        return total + self.learn(self.optimizers[0], F.softplus(-self.judge(made)).mean())


class Preferences(Job):
    """A language model writes answers token by token, then learns from them beside a frozen copy of itself."""
    steps = {"tiny": 2, "quick": 8}

    def setup(self) -> None:
        shape = TINY_GPT if self.tiny else dict(vocabulary=32000, context=1024, layers=12, width=1024, heads=16)
        self.model, self.frozen = Gpt(**shape), Gpt(**shape).eval()
        self.vocabulary = shape["vocabulary"]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-5)

    def written(self, rows: int, prompt: int, more: int) -> torch.Tensor:
        tokens = self.numbers(self.vocabulary, rows, prompt)
        with torch.no_grad(), self.half(torch.bfloat16):
            hidden, cache = self.model.hidden(tokens)
            for n in range(more):
                logits = F.linear(hidden[:, -1], self.model.tokens.weight)
                token = torch.multinomial(logits.float().softmax(-1), 1, generator=self.random)
                tokens = torch.cat((tokens, token), 1)
                hidden, cache = self.model.hidden(token, prompt + n, cache)
        return tokens

    def chance(self, model: Gpt, tokens: torch.Tensor) -> torch.Tensor:
        logits = F.linear(model.hidden(tokens[:, :-1])[0], model.tokens.weight).float()
        return logits.log_softmax(-1).gather(2, tokens[:, 1:, None]).mean()

    def step(self, i: int) -> float:
        prompt, more = (8, self.between(3, 8)) if self.tiny else (self.between(64, 256), self.between(32, 128))
        tokens = self.written(2 if self.tiny else 16, prompt, more)
        with self.half(torch.bfloat16):
            with torch.no_grad():
                before = self.chance(self.frozen, tokens)
            loss = -F.logsigmoid(self.chance(self.model, tokens) - before)
        return self.learn(self.optimizer, loss)


class Beams(Job):
    """Beam search: after every token the caches of the surviving beams are gathered anew; rows end one by one."""
    steps = {"tiny": 2, "quick": 6}

    def setup(self) -> None:
        shape = TINY_GPT if self.tiny else dict(vocabulary=16000, context=1024, layers=12, width=1024, heads=16)
        self.model, self.vocabulary = Gpt(**shape).eval(), shape["vocabulary"]

    @torch.no_grad()
    def step(self, i: int) -> float:
        rows, length = (4, 8) if self.tiny else (self.between(16, 64), self.between(32, 256))
        with self.half(torch.bfloat16):
            hidden, cache = self.model.hidden(self.numbers(self.vocabulary, rows, length))
            for n in range(5 if self.tiny else 100):
                best = F.linear(hidden[:, -1], self.model.tokens.weight).argmax(-1, keepdim=True)
                going = torch.randint(0, len(best), (max(1, len(best) - int(self.between(0, 9) == 0)),), device=self.device, generator=self.random)
                cache = [(k[going], v[going]) for k, v in cache]
                hidden, cache = self.model.hidden(best[going], length + n, cache)
        return float(hidden.float().sum())


class Segments(Job):
    """Segmentation of images prefetched on a stream of their own; their memory is recorded as used by both streams."""
    steps = {"tiny": 3, "quick": 50}

    def setup(self) -> None:
        shape = dict(depths=(1, 1, 1, 1), width=8) if self.tiny else {}
        self.body = ResNet(**shape)
        self.heads = nn.ModuleList(nn.Conv2d(c, 21, 1) for c in self.body.channels)
        self.optimizer = torch.optim.SGD(nn.ModuleList((self.body, self.heads)).parameters(), lr=0.01)
        self.side = torch.cuda.Stream() if self.device.type == "cuda" else None
        self.next = self.fetched()

    def fetched(self) -> torch.Tensor:
        shape = (2, 3, 64, 64) if self.tiny else (self.between(6, 16), 3, 32 * self.between(8, 20), 32 * self.between(8, 20))
        with torch.cuda.stream(self.side):
            raw = torch.randint(0, 256, shape, dtype=torch.uint8, device=self.device, generator=self.random)
            return raw.float().div_(255).sub_(0.5)

    def step(self, i: int) -> float:
        images = self.next
        if self.side:
            torch.cuda.current_stream().wait_stream(self.side)
            images.record_stream(torch.cuda.current_stream())
        self.next = self.fetched()
        with self.half(torch.bfloat16):
            found = None
            for head, level in reversed(list(zip(self.heads, self.body(images)))):
                found = head(level) if found is None else head(level) + doubled(found)[:, :, :level.shape[2], :level.shape[3]]
            loss = F.cross_entropy(found.float(), self.numbers(21, found.shape[0], *found.shape[2:]))
        return self.learn(self.optimizer, loss)


RECORDED = {"diffusion": Diffusion, "experts": Experts, "translation": Translation, "speech": Speech, "points": Points,
            "rollouts": Rollouts, "sweep": Sweep, "evaluating": Evaluating, "adversaries": Adversaries,
            "preferences": Preferences, "beams": Beams, "segmentation": Segments}
