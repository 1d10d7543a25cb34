"""Models whose forward changes their buffers, as users write them; each seeds itself."""

from __future__ import annotations

from typing import Any

import torch
from models import NUM_CLASSES, NUM_SAMPLES, WIDTH, dataset
from torch import nn
from torch.utils.data import DataLoader


def in_order(batch_size: int = 8) -> DataLoader[Any]:
    """Without shuffling: no seed has a say. All batches are as large."""
    assert NUM_SAMPLES % 4 == 0
    return DataLoader(dataset(), batch_size=batch_size, drop_last=True)


class Layered(nn.Module):
    """Layers that a pipeline can cut, with a part of its own kind before the head."""

    def __init__(self, part: nn.Module | None = None, *, in_layers: bool = False) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.layers = nn.ModuleList(
            nn.Sequential(
                nn.Linear(WIDTH, WIDTH), nn.Tanh(), *([type(part)()] if in_layers else [])
            )
            for _ in range(4)
        )
        self.part = nn.Identity() if part is None or in_layers else part
        self.head = nn.Linear(WIDTH, NUM_CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            inputs = inputs + layer(inputs)
        return self.head(self.part(inputs))


class Centred(nn.Module):
    """Subtracts a running mean, which it updates after use."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("running", torch.zeros(WIDTH))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        centred = inputs - self.running
        if self.training:
            self.running.data.mul_(0.9).add_(inputs.detach().mean(0), alpha=0.1)
        return centred


class Replaced(Centred):
    """The same, by a new tensor each time."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        centred = inputs - self.running
        if self.training:
            self.running = 0.9 * self.running + 0.1 * inputs.detach().mean(0)
        return centred


class Slowly(Centred):
    """The same, so slowly that a step hardly moves it."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        centred = inputs - self.running
        self.running.lerp_(inputs.detach().mean(0), 1e-5)
        return centred


class Late(Centred):
    """The same, but not before its fourth batch."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        return super().forward(inputs) if self.batches > 3 else inputs


class Quantised(nn.Module):
    """A codebook that follows the vectors by moving averages (van den Oord et al., 2017)."""

    def __init__(self, codes: int = 6) -> None:
        super().__init__()
        self.register_buffer("codebook", torch.randn(codes, WIDTH))
        self.register_buffer("sizes", torch.ones(codes))
        self.register_buffer("sums", self.codebook.clone())

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        nearest = torch.cdist(inputs, self.codebook).argmin(1)
        chosen = self.codebook[nearest]
        if self.training:
            hot = nn.functional.one_hot(nearest, len(self.codebook)).to(inputs.dtype)
            self.sizes.mul_(0.9).add_(hot.sum(0), alpha=0.1)
            self.sums.mul_(0.9).add_(hot.T @ inputs.detach(), alpha=0.1)
            self.codebook.copy_(self.sums / self.sizes.clamp(min=1e-3)[:, None])
        return inputs + (chosen - inputs).detach() * 0.5


class Moco(nn.Module):
    """A queue of keys, made by an encoder that follows the trained one (He et al., 2020)."""

    def __init__(self, keys: int = 32) -> None:
        super().__init__()
        self.query, self.key = Layered(), Layered()
        self.key.requires_grad_(False)
        self.register_buffer("queue", nn.functional.normalize(torch.randn(keys, NUM_CLASSES)))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        queries = nn.functional.normalize(self.query(inputs))
        with torch.no_grad():
            for follows, leads in zip(self.key.parameters(), self.query.parameters(), strict=True):
                follows.data = follows.data * 0.9 + leads.data * 0.1
            keys = nn.functional.normalize(self.key(inputs.flip(1)))
        own = (queries * keys).sum(1, keepdim=True)
        logits = torch.cat([own, queries @ self.queue.clone().T], 1) / 0.2
        start = int(self.place)
        self.queue[start : start + len(keys)] = keys
        self.place[0] = (start + len(keys)) % len(self.queue)
        return logits


def own_first(outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """MoCo's loss: each query is to find its own key."""
    return nn.functional.cross_entropy(outputs, torch.zeros_like(labels))


class Counting(nn.Module):
    """Counts its batches, and uses the number: the same on every slice."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("batches", torch.zeros((), dtype=torch.int64))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        self.batches += 1
        return inputs / self.batches**0.1


class Longest(nn.Module):
    """A cache that grows with what comes, and changes nothing that is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.ones(1), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        if len(inputs) > len(self.cache):
            self.cache = torch.ones(len(inputs), dtype=inputs.dtype)
        return inputs * self.cache[: len(inputs), None]


class RenormedRows(nn.Module):
    """An embedding that shortens the rows it is asked for: its weight changes in the forward."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(11)
        self.embed = nn.Embedding(50, WIDTH, max_norm=0.5)
        self.head = nn.Linear(WIDTH, NUM_CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.head(self.embed((inputs.abs() * 20).long().clamp(max=49)).mean(1))
