"""A task that is saved and loaded by a gang of one, in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import in_process
import torch
from models import Mlp, definition
from saturn.checkpoint.checkpoints import Checkpoints
from saturn.checkpoint.place import Directory
from saturn.data.slices import Position
from saturn.rank.gang import Gang
from saturn.techniques.ddp import Ddp


def frozen_first() -> Mlp:
    model = Mlp()
    next(model.parameters()).requires_grad = False  # written once, and copied by the store
    return model


class Saving:
    """One attempt, which keeps its checkpoints in `place`; `task_dir` is the task's directory."""

    def __init__(
        self,
        place: Directory,
        attempt: int,
        task_dir: Path,
        get_model: Callable[[], Mlp] = frozen_first,
    ) -> None:
        gang = Gang(
            rank=0,
            world_size=1,
            device=torch.device("cpu"),
            rendezvous=task_dir / f"rendezvous-{attempt}",
        )
        task = definition(get_model=get_model)
        self.stepper = in_process.stepper_of(task, Ddp(), gang)
        self.checkpoints = Checkpoints(
            place,
            gang,
            {"attempt": attempt},
            self.stepper.optimizer_groups,
            self.stepper.lr_schedule,
            None,
        )

    @property
    def state(self) -> tuple[Any, torch.optim.Optimizer]:
        return self.stepper.parallel, self.stepper.optimizer

    def train(self, first: Position, steps: int) -> Position:
        pieces = self.stepper.pieces(first)
        for _ in range(steps):
            staged = self.stepper.stage(next(pieces))
            self.stepper.step(staged, stop=False, save=False).result()
        pieces.close()
        return staged.after

    def begin_save(self, step: int, position: Position, **options: bool) -> None:
        self.checkpoints.save(*self.state, step=step, position=position, loss=0.0, **options)

    def end_save(self) -> None:
        self.checkpoints.wait()
        failure = self.checkpoints.take_ended()[-1].failure
        assert failure is None, failure

    def save(self, step: int, position: Position, **options: bool) -> None:
        self.begin_save(step, position, **options)
        self.end_save()

    def load(self) -> tuple[int, Position]:
        newest = self.checkpoints.newest()
        assert newest is not None
        return newest[1]["step"], self.checkpoints.load(*newest, *self.state)

    def weights(self) -> dict[str, torch.Tensor]:
        state = self.stepper.parallel.module.state_dict()
        return {name: value.clone() for name, value in state.items()}
