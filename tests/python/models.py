"""Tiny tasks for the tests, importable by the workers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from saturn.tasks.definition import TaskDefinition
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

NUM_SAMPLES, WIDTH, NUM_CLASSES = 44, 12, 5


class Mlp(nn.Module):
    """Embedding-free residual blocks in a ModuleList, with a buffer that is not saved."""

    def __init__(self, depth: int = 3, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, NUM_CLASSES)
        self.dropout = nn.Dropout(dropout)
        self.register_buffer("scale", torch.full((1,), 1.5), persistent=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs
        for layer in self.layers:
            hidden = hidden + self.dropout(torch.tanh(layer(hidden)))
        return self.head(self.norm(hidden) * self.scale)


def dataset() -> TensorDataset:
    generator = torch.Generator().manual_seed(7)
    inputs = torch.randn(NUM_SAMPLES, WIDTH, generator=generator)
    return TensorDataset(inputs, torch.arange(NUM_SAMPLES) % NUM_CLASSES)


def shuffled_loader(batch_size: int = 8) -> DataLoader[Any]:
    # 44 samples in batches of 8: the last of an epoch has 4, which 3 ranks don't divide either.
    return DataLoader(dataset(), batch_size=batch_size, shuffle=True)


def definition(name: str = "mlp", **changes: Any) -> TaskDefinition:
    fields: dict[str, Any] = {
        "name": name,
        "get_model": Mlp,
        "get_dataloader": shuffled_loader,
        "loss_function": nn.functional.cross_entropy,
        "loss_weight": None,
        "lr": 0.01,
        "epochs": None,
        "batch_count": 12,
        "optimizer_cls": torch.optim.AdamW,
        "kwargs": {},
        "hints": {},
        "seed": 3,
    }
    return TaskDefinition(**{**fields, **changes})


class Calls:
    """Calls a function in each rank, where the task is loaded."""

    def __init__(self, function: Callable[[], None]) -> None:
        self._function = function

    def __reduce__(self) -> Any:
        return self._function, ()
