"""Models in plain PyTorch, with random weights: allocations depend on shapes, not on learned values."""
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


class Bottleneck(nn.Module):
    """ResNet's block of three convolutions."""

    def __init__(self, inputs: int, width: int, stride: int) -> None:
        super().__init__()
        outputs = width * 4
        self.body = nn.Sequential(
            nn.Conv2d(inputs, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if same else nn.Sequential(
            nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.relu(self.body(x) + self.shortcut(x))


class ResNet(nn.Module):
    """ResNet-50 with depths (3, 4, 6, 3) and width 64. forward() gives the maps of the last three stages."""

    def __init__(self, depths=(3, 4, 6, 3), width: int = 64) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 7, 2, 3, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
                                  nn.MaxPool2d(3, 2, 1))
        self.stages, inputs = nn.ModuleList(), width
        for i, depth in enumerate(depths):
            blocks = []
            for j in range(depth):
                blocks.append(Bottleneck(inputs, width << i, 2 if i > 0 and j == 0 else 1))
                inputs = (width << i) * 4
            self.stages.append(nn.Sequential(*blocks))
        self.channels = [(width << i) * 4 for i in range(1, 4)]

    def forward(self, x: torch.Tensor):
        x, maps = self.stem(x), []
        for stage in self.stages:
            x = stage(x)
            maps.append(x)
        return maps[1:]


class Classifier(nn.Module):
    def __init__(self, classes: int, **shape) -> None:
        super().__init__()
        self.body = ResNet(**shape)
        self.head = nn.Linear(self.body.channels[-1], classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x)[-1].mean((2, 3)))


def doubled(x: torch.Tensor) -> torch.Tensor:
    """Doubles height and width. PyTorch's own interpolation has a nondeterministic gradient."""
    batch, channels, height, width = x.shape
    x = x[:, :, :, None, :, None].expand(batch, channels, height, 2, width, 2)
    return x.reshape(batch, channels, 2 * height, 2 * width)


class Detector(nn.Module):
    """A feature pyramid over ResNet, and heads that say class and box for each place of each level."""

    def __init__(self, classes: int, features: int = 256, **shape) -> None:
        super().__init__()
        self.body = ResNet(**shape)
        self.lateral = nn.ModuleList(nn.Conv2d(c, features, 1) for c in self.body.channels)
        self.head = nn.Sequential(*[layer for _ in range(3)
                                    for layer in (nn.Conv2d(features, features, 3, padding=1), nn.ReLU(inplace=True))],
                                  nn.Conv2d(features, classes + 4, 3, padding=1))

    def forward(self, x: torch.Tensor):
        above, outputs = None, []
        for lateral, level in reversed(list(zip(self.lateral, self.body(x)))):
            level = lateral(level)
            if above is not None:
                level = level + doubled(above)
            above = level
            outputs.append(self.head(level))
        return outputs


class Lora(nn.Module):
    """A frozen linear layer with a learned adapter beside it."""

    def __init__(self, inputs: int, outputs: int, rank: int) -> None:
        super().__init__()
        self.base = nn.Linear(inputs, outputs)
        self.base.requires_grad_(False)
        self.down, self.up = nn.Linear(inputs, rank, bias=False), nn.Linear(rank, outputs, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.base(x) + self.up(self.down(x))


class GptBlock(nn.Module):
    def __init__(self, width: int, heads: int, rank: int) -> None:
        super().__init__()

        def linear(inputs: int, outputs: int) -> nn.Module:
            return Lora(inputs, outputs, rank) if rank else nn.Linear(inputs, outputs)

        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = linear(width, 3 * width), linear(width, width)
        self.mlp = nn.Sequential(linear(width, 4 * width), nn.GELU(), linear(4 * width, width))

    def forward(self, x: torch.Tensor, past=None):
        """Attention is spelled out, so that its memory comes from PyTorch and its gradient is deterministic. `past` has the
        keys and values of earlier tokens; they are returned with the new ones appended."""
        batch, length, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        if past is not None:
            k, v = torch.cat((past[0], k), 2), torch.cat((past[1], v), 2)
        scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
        if length > 1:
            future = torch.ones(length, k.shape[2], dtype=torch.bool, device=x.device).triu(1 + k.shape[2] - length)
            scores = scores.masked_fill(future, -math.inf)
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.norm2(x)), (k, v)


class Gpt(nn.Module):
    """GPT-2: 12 layers of width 768 with 12 heads. With `rank`, only adapters of that rank learn."""

    def __init__(self, vocabulary=50257, context=1024, layers=12, width=768, heads=12, rank=0, recompute=False) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.blocks = nn.ModuleList(GptBlock(width, heads, rank) for _ in range(layers))
        self.norm, self.recompute = nn.LayerNorm(width), recompute
        for embedding in (self.tokens, self.places):
            nn.init.normal_(embedding.weight, std=0.02)
        if rank:
            for part in (self.tokens, self.places, self.norm):
                part.requires_grad_(False)

    def hidden(self, tokens: torch.Tensor, first: int = 0, past=None):
        length = tokens.shape[1]
        x = self.tokens(tokens) + self.places(torch.arange(first, first + length, device=tokens.device))
        if self.recompute:
            x.requires_grad_(True)
        kept = []
        for i, block in enumerate(self.blocks):
            if self.recompute:
                x, kv = checkpoint(block, x, use_reentrant=False)
            else:
                x, kv = block(x, past[i] if past else None)
            kept.append(kv)
        return self.norm(x), kept

    def loss(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = F.linear(self.hidden(tokens[:, :-1])[0], self.tokens.weight)
        return F.cross_entropy(logits.float().flatten(0, 1), tokens[:, 1:].flatten())


class GraphSage(nn.Module):
    """Each layer combines a node with the mean of its sampled neighbours."""

    def __init__(self, features: int, width: int, classes: int, layers: int) -> None:
        super().__init__()
        sizes = [features] + [width] * (layers - 1) + [classes]
        self.layers = nn.ModuleList(nn.Linear(2 * a, b) for a, b in zip(sizes, sizes[1:]))

    def forward(self, x: torch.Tensor, samples) -> torch.Tensor:
        """samples: per layer, from the outermost, the neighbours (rows of x) of the nodes that go on."""
        for i, (layer, neighbours) in enumerate(zip(self.layers, samples)):
            x = layer(torch.cat((x[:neighbours.shape[0]], x[neighbours].mean(1)), 1))
            if i + 1 < len(self.layers):
                x = x.relu()
        return x
