"""A task whose state takes memory worth speaking of, and techniques that say nothing of theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from models import definition
from saturn.core.executors.Technique import BaseTechnique
from saturn.tasks.definition import TaskDefinition
from saturn.techniques import Knobs, Setting
from saturn.techniques.ddp import Ddp
from saturn.techniques.fsdp import Fsdp
from torch import nn

WIDTH, CLASSES = 1024, 5


class Deep(nn.Module):
    """Square linear layers: 4.2 MB each in float32."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(depth))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = inputs
        for layer in self.layers:
            hidden = hidden + torch.tanh(layer(hidden))
        return self.head(hidden)


class Lopsided(nn.Module):
    """A large layer that comes last among small ones, and a head as large."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        small = [nn.Linear(WIDTH, WIDTH) for _ in range(depth)]
        large = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH))
        self.layers = nn.ModuleList([*small, large])
        self.head = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, CLASSES))

    forward = Deep.forward


def batches() -> Any:
    generator = torch.Generator().manual_seed(5)
    samples = torch.utils.data.TensorDataset(
        torch.randn(64, WIDTH, generator=generator), torch.arange(64) % CLASSES
    )
    return torch.utils.data.DataLoader(samples, batch_size=8, shuffle=True)


def task(name: str = "deep", depth: int = 10, **changes: Any) -> TaskDefinition:
    """A model of 42 MB by default; its state with AdamW is four times that."""
    fields = {"get_model": Deep, "kwargs": {"depth": depth}, "get_dataloader": batches, **changes}
    return definition(name, **fields)


class PlainDdp(Ddp):
    """Without a bound of its memory, so that every trial is run; and one set of knobs."""

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> Any:
        return None

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        return []


class PlainFsdp(Fsdp):
    """The same."""

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{}]

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> Any:
        return None

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        return []


class Box(BaseTechnique):
    """Trains the whole model in its one process."""

    def execute(task, gpus, task_id, batch_count):  # noqa: N805
        model = task.get_model()
        optimizer = task.hparams.optimizer_cls(model.parameters(), lr=task.hparams.lr)
        for inputs, labels in task.get_iterator():
            task.loss_function(model(inputs), labels).backward()
            optimizer.step()
            optimizer.zero_grad()
