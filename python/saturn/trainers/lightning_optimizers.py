"""The result of a LightningModule's `configure_optimizers`, as a task's optimizer and scheduler.

There must be one optimizer, and at most one scheduler that follows steps or epochs. Every form in
which Lightning takes these is understood; everything else is refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from saturn.errors import InvalidInput

_ONE = "Saturn steps one optimizer a task"


@dataclass(frozen=True)
class Configured:
    """An optimizer and its learning rate scheduler."""

    optimizer: torch.optim.Optimizer
    scheduler: LRScheduler | None
    #: Epochs between two steps of the scheduler; None: it is stepped after every step.
    every_epochs: int | None


def configured(found: Any) -> Configured:
    """Read the result of `configure_optimizers`; raises `InvalidInput`."""
    if isinstance(found, torch.optim.Optimizer):
        return Configured(found, None, None)
    if isinstance(found, Mapping):
        return _of_mapping(found)
    if isinstance(found, list | tuple) and found:
        if len(found) == 2 and isinstance(found[0], list):
            optimizers, schedulers = found
            schedulers = schedulers if isinstance(schedulers, list) else [schedulers]
        else:
            optimizers, schedulers = list(found), []
        if len(optimizers) != 1:
            raise InvalidInput(
                f"configure_optimizers returned {len(optimizers)} optimizers; {_ONE}"
            )
        if isinstance(optimizers[0], Mapping) and not schedulers:
            return _of_mapping(optimizers[0])
        if isinstance(optimizers[0], torch.optim.Optimizer):
            if len(schedulers) > 1:
                raise InvalidInput(
                    f"configure_optimizers returned {len(schedulers)} schedulers; a task has one "
                    "(torch.optim.lr_scheduler.ChainedScheduler joins several)"
                )
            return _scheduled(optimizers[0], *schedulers)
    raise InvalidInput(
        f"configure_optimizers returned a {type(found).__name__}; it must return a torch "
        "optimizer, alone or with a scheduler"
    )


def _of_mapping(found: Mapping[str, Any]) -> Configured:
    optimizer = found.get("optimizer")
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise InvalidInput(
            f"configure_optimizers returned a {type(optimizer).__name__} as `optimizer`; it must "
            "be a torch optimizer"
        )
    schedulers = [found["lr_scheduler"]] if "lr_scheduler" in found else []
    return _scheduled(optimizer, *schedulers)


def _scheduled(optimizer: torch.optim.Optimizer, scheduler: Any = None) -> Configured:
    if scheduler is None:
        return Configured(optimizer, None, None)
    said = dict(scheduler) if isinstance(scheduler, Mapping) else {"scheduler": scheduler}
    scheduler = said.get("scheduler")
    interval, frequency = said.get("interval", "epoch"), said.get("frequency", 1)
    if isinstance(scheduler, ReduceLROnPlateau) or said.get("reduce_on_plateau"):
        raise InvalidInput(
            "configure_optimizers returned ReduceLROnPlateau, which follows a measured value whose "
            "last bits depend on the plan; use a scheduler that follows steps or epochs"
        )
    if not isinstance(scheduler, LRScheduler):
        raise InvalidInput(
            f"configure_optimizers returned a {type(scheduler).__name__} as scheduler; it must be "
            "a torch.optim.lr_scheduler.LRScheduler"
        )
    if interval == "epoch":
        return Configured(optimizer, scheduler, frequency)
    if interval != "step" or frequency != 1:
        raise InvalidInput(
            f"configure_optimizers returned a scheduler with interval={interval!r} and "
            f"frequency={frequency}; Saturn steps it after every step, or after whole epochs"
        )
    return Configured(optimizer, scheduler, None)


def steps_an_epoch(batches: int | None, a_step: int, epoch_batches: int | None) -> int:
    """Optimizer steps of an epoch; raises `InvalidInput` if steps don't end with epochs."""
    if batches is None:
        raise InvalidInput(
            "configure_optimizers returned a scheduler that follows epochs, and the loader has no "
            'length; return {"scheduler": …, "interval": "step"}'
        )
    if batches % a_step and epoch_batches != batches:
        raise InvalidInput(
            f"configure_optimizers returned a scheduler that follows epochs, and an epoch of "
            f"{batches} batches is no whole number of steps of {a_step}; "
            f"say HParams(epoch_batches={batches}), or return "
            '{"scheduler": …, "interval": "step"}'
        )
    return -(-batches // a_step)


class EveryFew(LRScheduler):
    """Steps a scheduler that follows epochs: once in `every` optimizer steps."""

    # The base class isn't initialised: that would step, and change the learning rate.
    def __init__(self, scheduler: LRScheduler, every: int) -> None:
        """`every` is the number of optimizer steps between two steps of `scheduler`."""
        self.optimizer = scheduler.optimizer
        self._schedulers = [scheduler]  # torch's own composed schedulers use this name
        self._every, self._done = every, 0

    def step(self, epoch: int | None = None) -> None:
        self._done += 1
        if self._done % self._every == 0:
            self._schedulers[0].step()

    def get_last_lr(self) -> list[Any]:
        return self._schedulers[0].get_last_lr()

    def state_dict(self) -> dict[str, Any]:
        return {"done": self._done, "scheduler": self._schedulers[0].state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._done = state_dict["done"]
        self._schedulers[0].load_state_dict(state_dict["scheduler"])
