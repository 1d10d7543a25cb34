"""A task's learning rate scheduler: built, stepped, and carried over as plain data.

Any torch scheduler works whose state consists of numbers, texts and nestings of them, composed
schedulers included. The state goes into the checkpoint's manifest. Functions in the state belong to
the task, and are made anew with the scheduler. Values that a scheduler writes into the optimizer's
groups (rates, momenta) travel with the groups (see `optimizer_groups`).

ReduceLROnPlateau is refused: it follows the loss, whose last bits depend on the plan.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch.optim.lr_scheduler import LRScheduler, ReduceLROnPlateau

from saturn.rank.exceptions import TaskError
from saturn.rank.failure import task_function


class LrSchedule:
    """The scheduler of one optimizer; a task without a scheduler has one that does nothing."""

    def __init__(
        self, lr_scheduler: Callable[..., Any] | None, optimizer: torch.optim.Optimizer
    ) -> None:
        """Build the scheduler; raises `TaskError` if it is none or can't be carried over."""
        self._scheduler: LRScheduler | None = None
        if lr_scheduler is None:
            return
        with task_function("lr_scheduler"):
            scheduler = lr_scheduler(optimizer)
        if not isinstance(scheduler, LRScheduler):
            raise TaskError(
                f"lr_scheduler returned a {type(scheduler).__name__}; it must return a "
                "torch.optim.lr_scheduler.LRScheduler over the optimizer that it is called with"
            )
        if any(isinstance(each, ReduceLROnPlateau) for each in _with_inner(scheduler)):
            raise TaskError(
                "lr_scheduler returned ReduceLROnPlateau, which follows the loss: the last bits "
                "of a loss depend on the plan, and the training must not; use a scheduler that "
                "follows the step"
            )
        if scheduler.optimizer is not optimizer:
            raise TaskError(
                "lr_scheduler returned a scheduler of another optimizer than it was called with"
            )
        self._scheduler = scheduler
        self.state()

    def step(self) -> None:
        """Step the scheduler; to be called after each step of the optimizer."""
        if self._scheduler is not None:
            with task_function("lr_scheduler"):
                self._scheduler.step()

    def skip(self, steps: int) -> None:
        """Bring a fresh scheduler to its state after `steps`, if no state of it was kept."""
        with warnings.catch_warnings():
            # torch warns of a scheduler that is stepped before its optimizer.
            warnings.filterwarnings("ignore", message="Detected call of `lr_scheduler.step")
            for _ in range(steps):
                self.step()

    def state(self) -> Any:
        """The entry in the manifest: JSON data; None without a scheduler."""
        if self._scheduler is None:
            return None
        with task_function("lr_scheduler's state_dict"):
            state = self._scheduler.state_dict()
        return _encode(state, "")

    def restore(self, state: Any) -> None:
        """Continue from a state that `state` returned.

        Raises `ValueError` if only one of the state and this task has a scheduler.
        """
        if (state is None) != (self._scheduler is None):
            raise ValueError(
                f"the checkpoint holds {'no' if state is None else 'the'} state of an lr_scheduler;"
                f" the task has {'none' if self._scheduler is None else 'one'}"
            )
        if self._scheduler is not None:
            with task_function("lr_scheduler's load_state_dict"):
                self._scheduler.load_state_dict(_decode(state))


def _with_inner(scheduler: Any) -> Iterator[Any]:
    """A scheduler and the schedulers that it is composed of."""
    yield scheduler
    for inner in getattr(scheduler, "_schedulers", ()):
        yield from _with_inner(inner)


def _encode(value: Any, where: str) -> Any:
    """`value` as JSON data, which `_decode` turns back; `where` names the value in errors."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return [_encode(inner, f"{where}[{i}]") for i, inner in enumerate(value)]
    if isinstance(value, tuple):
        return {"tuple": [_encode(inner, f"{where}[{i}]") for i, inner in enumerate(value)]}
    if isinstance(value, Mapping):
        kind = "counter" if isinstance(value, Counter) else "dict"
        items = [
            [_encode(key, f"{where}'s key"), _encode(inner, f"{where}.{key}" if where else key)]
            for key, inner in value.items()
            if not callable(inner)
        ]
        return {kind: items}
    raise TaskError(
        f"lr_scheduler's state holds a {type(value).__name__} in `{where}`; Saturn carries over "
        "numbers, texts, lists and mappings: give the scheduler's class a state_dict and a "
        "load_state_dict that say what changes in such terms"
    )


def _decode(data: Any) -> Any:
    if isinstance(data, list):
        return [_decode(inner) for inner in data]
    if isinstance(data, Mapping):
        ((kind, inner),) = data.items()
        if kind == "tuple":
            return tuple(_decode(each) for each in inner)
        items = {_decode(key): _decode(each) for key, each in inner}
        return Counter(items) if kind == "counter" else items
    return data
