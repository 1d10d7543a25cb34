"""Trains a task under a technique in this very process: a gang of one, without a runtime.

For what is about numbers and memory rather than processes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from saturn.data.slices import Position
from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.interface import Technique
from saturn.training.stepper import Stepper


@contextlib.contextmanager
def gang_of_one(directory: Path) -> Iterator[Gang]:
    gang = Gang(
        rank=0, world_size=1, device=torch.device("cpu"), rendezvous=directory / "rendezvous"
    )
    try:
        yield gang
    finally:
        if dist.is_initialized():
            gang.close()


def stepper_of(
    task: TaskDefinition, technique: Technique, gang: Gang, knobs: dict[str, Any] | None = None
) -> Stepper:
    return Stepper(task, technique, gang, knobs or {}, note=print)


def train(
    task: TaskDefinition,
    technique: Technique,
    directory: Path,
    *,
    steps: int,
    knobs: dict[str, Any] | None = None,
) -> tuple[dict[int, float], dict[str, torch.Tensor]]:
    """(loss by step number from 1, the trained weights by name)."""
    with gang_of_one(directory) as gang:
        stepper = stepper_of(task, technique, gang, knobs)
        pieces = stepper.pieces(Position())
        losses = {}
        for step in range(steps):
            result = stepper.step(stepper.stage(next(pieces)), stop=False, save=False).result()
            losses[step + 1] = result.loss
        pieces.close()
        state = stepper.parallel.module.state_dict()
        weights = {name: _whole(tensor).clone() for name, tensor in state.items()}
    return losses, weights


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    full = getattr(tensor, "full_tensor", None)
    return tensor if full is None else full()
