"""Loaders whose datasets or collate functions draw random numbers, and a model of tokens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, Subset

NUM_SAMPLES, LENGTH, VOCABULARY = 26, 12, 24


def rows() -> list[dict[str, list[int]]]:
    """Rows of different lengths."""
    generator = torch.Generator().manual_seed(1)
    table = torch.randint(5, VOCABULARY, (NUM_SAMPLES, LENGTH), generator=generator).tolist()
    return [{"input_ids": row[: 6 + number % 7]} for number, row in enumerate(table)]


def tokenizer() -> Any:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import PreTrainedTokenizerFast

    special = {"pad_token": "[PAD]", "mask_token": "[MASK]", "unk_token": "[UNK]"}
    words = {"[PAD]": 0, "[UNK]": 1, "[MASK]": 2, **{f"w{n}": n for n in range(3, VOCABULARY)}}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel(words, unk_token="[UNK]")), **special
    )


def masked(seed: int | None = None, batch_size: int = 6, **options: Any) -> DataLoader[Any]:
    """Masked language modelling by transformers' collator."""
    from transformers import DataCollatorForLanguageModeling

    collate = DataCollatorForLanguageModeling(tokenizer(), mlm_probability=0.3, seed=seed)
    return DataLoader(rows(), batch_size, collate_fn=collate, **options)


class Numbers(Dataset[Any]):
    """Sample i is i, beside a random number of its own."""

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        noise = torch.rand(()).item() + random.random() + np.random.rand()
        return {"x": torch.tensor([index, noise], dtype=torch.float64)}


class Bulk(Numbers):
    """Fetches many at once, one after the other."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self[index] for index in indices]


class OwnGenerators(Numbers):
    """Draws from generators of its own, one of which it makes when it first needs it."""

    def __init__(self) -> None:
        self.numpy, self.older = np.random.default_rng(0), np.random.RandomState(0)
        self.transforms = [partial(OwnGenerators.noise, random.Random(0))]
        self.late: torch.Generator | None = None

    @staticmethod
    def noise(generator: random.Random) -> float:
        return generator.random()

    def __getitem__(self, index: int) -> dict[str, Any]:
        self.late = self.late or torch.Generator().manual_seed(3)
        drawn = [self.numpy.random(), self.older.rand(), self.transforms[0]()]
        drawn.append(torch.rand((), generator=self.late).item())
        return {"x": torch.tensor([index, *drawn], dtype=torch.float64)}


def mixed_up(samples: list[Any]) -> dict[str, torch.Tensor]:
    """Mixes each sample with another of its batch, by a number that is drawn once for all."""
    together = torch.stack([sample["x"] for sample in samples])
    return {"x": together.lerp(together[torch.randperm(len(together))], random.random())}


def mixed_up_by_its_own() -> DataLoader[Any]:
    """The same, by a collate function that holds its generator in a closure."""
    generator = random.Random(0)

    def collate(samples: list[Any]) -> dict[str, torch.Tensor]:
        together = torch.stack([sample["x"] for sample in samples])
        return {"x": together.lerp(together.roll(1, 0), generator.random())}

    return DataLoader(Numbers(), 6, collate_fn=collate)


def plain(samples: list[Any]) -> dict[str, torch.Tensor]:
    return {"x": torch.stack([sample["x"] for sample in samples])}


def twice(samples: list[Any]) -> dict[str, torch.Tensor]:
    """Two views of each sample, one after the other."""
    views = torch.cat([plain(samples)["x"], plain(samples)["x"]])
    return {"x": views + torch.rand(len(views), 1)}


def cropped() -> DataLoader[Any]:
    """Random crops by `with_transform`, of as many samples as are asked for at once."""
    import datasets

    def crop(samples: dict[str, list[Any]]) -> dict[str, list[Any]]:
        starts = [random.randrange(4) for _ in samples["row"]]
        return {
            "x": [torch.tensor(r[s : s + 3]) for r, s in zip(samples["row"], starts, strict=True)]
        }

    table = [[float(10 * n + k) for k in range(6)] for n in range(NUM_SAMPLES)]
    data = datasets.Dataset.from_dict({"row": table}).with_transform(crop)
    return DataLoader(data, 6, collate_fn=plain, shuffle=True)


class Epochs(IterableDataset[Any]):
    """Shuffled by the epoch it is told, from its seed."""

    def __init__(self) -> None:
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        generator = torch.Generator().manual_seed(100 + self.epoch)
        for index in torch.randperm(NUM_SAMPLES, generator=generator).tolist():
            yield {"x": torch.tensor([index, self.epoch])}


class OwnLoader:
    """No DataLoader: batches of its own, in an order of the epoch that it is told."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        for start in range(0, NUM_SAMPLES, 6):
            numbers = torch.arange(start, min(start + 6, NUM_SAMPLES))
            yield {"x": torch.stack([numbers, torch.full_like(numbers, self.epoch)], dim=1)}


class EpochsByIndex(Dataset[Any]):
    """A map-style dataset that wants to know the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return NUM_SAMPLES

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.tensor([index, self.epoch])}


LOADERS = {
    "masked": masked,
    "masked by a generator of its own": partial(masked, 7),
    "masked in workers": partial(masked, 7, num_workers=2),
    "shuffled and masked": partial(masked, shuffle=True),
    "mixed up": lambda: DataLoader(Numbers(), 6, collate_fn=mixed_up),
    "mixed up in workers": lambda: DataLoader(Numbers(), 6, collate_fn=mixed_up, num_workers=1),
    "mixed up by a generator in a closure": mixed_up_by_its_own,
    "bulk": lambda: DataLoader(Bulk(), 6, collate_fn=plain),
    "subset": lambda: DataLoader(Subset(Numbers(), range(20)), 6, collate_fn=plain),
    "own generators": lambda: DataLoader(OwnGenerators(), 6, collate_fn=plain, shuffle=True),
    "own generators in workers": lambda: DataLoader(
        OwnGenerators(), 6, collate_fn=plain, num_workers=2
    ),
    "cropped": cropped,
}
EPOCHS = {
    "stream": lambda: DataLoader(Epochs(), 6),
    "own loader": OwnLoader,
    "in a worker": lambda: DataLoader(Epochs(), 6, num_workers=1),
    "in a worker that stays": lambda: DataLoader(
        Epochs(), 6, num_workers=1, persistent_workers=True
    ),
    "map-style": lambda: DataLoader(EpochsByIndex(), 6, shuffle=True),
    "map-style in workers": lambda: DataLoader(EpochsByIndex(), 6, num_workers=2),
}


class TokenNet(nn.Module):
    """Says which token was at each place."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.embed = nn.Embedding(VOCABULARY, 16)
        self.layers = nn.ModuleList(nn.Sequential(nn.Linear(16, 16), nn.Tanh()) for _ in range(4))
        self.head = nn.Linear(16, VOCABULARY)

    def forward(
        self, input_ids: torch.Tensor, labels: Any = None, attention_mask: Any = None
    ) -> torch.Tensor:
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = hidden + layer(hidden)
        return self.head(hidden)


def of_masked(outputs: torch.Tensor, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(outputs.flatten(0, 1), batch["labels"].flatten())
