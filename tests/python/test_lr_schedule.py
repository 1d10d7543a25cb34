"""Learning rate schedulers: carried over as plain data, to the last bit."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from saturn.rank.exceptions import TaskError
from saturn.training.lr_schedule import LrSchedule
from saturn.training.optimizer_groups import OptimizerGroups
from torch.optim import SGD, AdamW, lr_scheduler
from torch.optim.lr_scheduler import LRScheduler

STEPS = 12
MOMENTUM = partial(SGD, momentum=0.9)


def warmup(optimizer: torch.optim.Optimizer) -> LRScheduler:
    """Warm-up, then steps, then cosine: composed, with a Counter inside."""
    parts: list[LRScheduler] = [
        lr_scheduler.LinearLR(optimizer, start_factor=0.1, total_iters=3),
        lr_scheduler.MultiStepLR(optimizer, milestones=[2, 3]),
        lr_scheduler.CosineAnnealingLR(optimizer, T_max=5),
    ]
    return lr_scheduler.SequentialLR(optimizer, parts, milestones=[3, 7])


def chained(optimizer: torch.optim.Optimizer) -> LRScheduler:
    halved = lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 ** (step // 4))
    return lr_scheduler.ChainedScheduler([lr_scheduler.ExponentialLR(optimizer, 0.9), halved])


class Growing(LRScheduler):
    """One of a user's own, with a tuple and a function in its state."""

    def __init__(self, optimizer: torch.optim.Optimizer, rule: Callable[[float], float]) -> None:
        self.rule, self.window = rule, (1, 0.5)
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        number, factor = self.window
        self.window = (number + 1, self.rule(factor))
        return [group["lr"] * factor for group in self.optimizer.param_groups]


@pytest.mark.parametrize(
    ("make", "optimizer_cls"),
    [
        (partial(lr_scheduler.OneCycleLR, max_lr=0.5, total_steps=STEPS), AdamW),
        (partial(lr_scheduler.OneCycleLR, max_lr=0.5, total_steps=STEPS), MOMENTUM),
        (partial(lr_scheduler.CyclicLR, base_lr=0.01, max_lr=0.1, step_size_up=3), MOMENTUM),
        (partial(lr_scheduler.CosineAnnealingWarmRestarts, T_0=3, T_mult=2), SGD),
        (partial(lr_scheduler.LambdaLR, lr_lambda=lambda step: 1 / (1 + step)), AdamW),
        (warmup, AdamW),
        (chained, AdamW),
        (partial(Growing, rule=lambda factor: factor * 0.97), SGD),
    ],
)
def test_a_schedule_goes_on_where_it_stood(
    make: Callable[..., LRScheduler], optimizer_cls: Callable[..., torch.optim.Optimizer]
) -> None:
    def built() -> tuple[torch.optim.Optimizer, LrSchedule, OptimizerGroups]:
        optimizer = optimizer_cls([torch.nn.Parameter(torch.ones(2))], lr=0.1)
        schedule = LrSchedule(make, optimizer)
        return optimizer, schedule, OptimizerGroups(optimizer)

    def run(optimizer: torch.optim.Optimizer, schedule: LrSchedule, steps: int) -> list[Any]:
        told = []
        for _ in range(steps):
            group = optimizer.param_groups[0]
            told.append({key: group.get(key) for key in ("lr", "betas", "momentum")})
            optimizer.step()
            schedule.step()
        return told

    optimizer, schedule, _ = built()
    whole = run(optimizer, schedule, STEPS)
    assert len({told["lr"] for told in whole}) >= 3
    optimizer, schedule, groups = built()
    parts: list[Any] = []
    for steps in (1, 4, 2, 0, STEPS - 7):
        parts += run(optimizer, schedule, steps)
        kept = json.dumps([schedule.state(), groups.changed()])
        optimizer, schedule, groups = built()
        state, changed = json.loads(kept)
        schedule.restore(state)
        groups.restore(changed)
    assert parts == whole
    # Where only the number of steps is known.
    _, skipped, _ = built()
    skipped.skip(STEPS)
    assert skipped.state() == schedule.state()


class Holding(LRScheduler):
    """Keeps a tensor in its state."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.inner = {"seen": [torch.ones(1)]}
        super().__init__(optimizer)

    def get_lr(self) -> list[float | torch.Tensor]:
        return [group["lr"] for group in self.optimizer.param_groups]


def of_another(optimizer: torch.optim.Optimizer) -> LRScheduler:
    return lr_scheduler.ConstantLR(SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1))


def composed_of_plateau(optimizer: torch.optim.Optimizer) -> LRScheduler:
    """As a scheduler of a user's own may be, which torch's own refuse."""
    made = lr_scheduler.ChainedScheduler([lr_scheduler.ConstantLR(optimizer)])
    made._schedulers = [*made._schedulers, lr_scheduler.ReduceLROnPlateau(optimizer)]
    return made


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda optimizer: 0.1, "lr_scheduler returned a float; it must return a torch.optim"),
        (lambda optimizer: 1 / 0, "lr_scheduler raised ZeroDivisionError"),
        (lambda optimizer: lr_scheduler.ReduceLROnPlateau(optimizer), "which follows the loss"),
        (composed_of_plateau, "which follows the loss"),
        (Holding, "a Tensor in `inner.seen[0]`"),
        (of_another, "a scheduler of another optimizer"),
    ],
)
def test_what_can_not_be_carried_over_is_said_at_once(
    make: Callable[..., Any], message: str
) -> None:
    optimizer = SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    with pytest.raises(TaskError) as caught:
        LrSchedule(make, optimizer)
    assert message in str(caught.value)


def test_without_a_scheduler_there_is_no_state_to_restore() -> None:
    optimizer = SGD([torch.nn.Parameter(torch.ones(1))], lr=0.1)
    none = LrSchedule(None, optimizer)
    none.step()
    none.restore(none.state())
    with pytest.raises(ValueError, match="holds the state of an lr_scheduler; the task has none"):
        none.restore(LrSchedule(warmup, optimizer).state())
