"""Refuse optimizers that keep something where no checkpoint finds it.

A checkpoint holds an optimizer's `state`, and the plain values in its groups. Some optimizers keep
slow weights, a count of steps or another optimizer in attributes. After each stop these would begin
anew, and the training would be another, without a word.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from saturn.rank.exceptions import TaskError

#: Attributes that checkpoints cover; and some that schedulers and torch itself add.
_COVERED = {"state", "param_groups", "defaults", "_opt_called", "_step_count"}
#: How deep attributes are looked into, and how many values of one.
_MOST_DEPTH, _MOST_VALUES = 3, 4096


class OptimizerMemory:
    """What one optimizer keeps in attributes of its own."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        """`optimizer` is fresh."""
        self._optimizer = optimizer
        self._is_of_torch = type(optimizer).__module__.startswith("torch.optim")
        self._known: set[str] = set()
        if not self._is_of_torch:
            # An optimizer with the attributes of every optimizer, and no others.
            self._known = _COVERED | vars(torch.optim.Optimizer([torch.zeros(())], {})).keys()
        self._before = {} if self._is_of_torch else self._kept()

    def check(self) -> None:
        """Raise `TaskError` if the optimizer's steps have changed what it keeps in attributes."""
        if self._is_of_torch:
            return
        for name, now in self._kept().items():
            if self._before.get(name) != now:
                raise TaskError(
                    f"the optimizer, a {type(self._optimizer).__name__}, keeps `{name}` outside of "
                    "its `state`. Checkpoints do not hold that, so it would begin anew after each "
                    "stop: keep tensors in `state[parameter]`, and numbers in `param_groups`"
                )

    def _kept(self) -> dict[str, list[Any]]:
        return {
            name: list(self._marks_of(value))
            for name, value in vars(self._optimizer).items()
            if name not in self._known
        }

    def _marks_of(self, value: Any, depth: int = 0) -> Iterator[Any]:
        """What changes if `value` changes; nothing for objects of unknown types."""
        if isinstance(value, Tensor):
            # A parameter is stepped, and saved with the model.
            if not isinstance(value, torch.nn.Parameter):
                yield id(value), value._version
        elif isinstance(value, bool | int | float):
            yield value
        elif isinstance(value, torch.optim.Optimizer):
            if value.state is not self._optimizer.state:
                yield len(value.state)
        elif depth < _MOST_DEPTH and isinstance(value, Mapping | list | tuple):
            if isinstance(value, Mapping):
                value = value.values()
            for _, inner in zip(range(_MOST_VALUES), value, strict=False):
                yield from self._marks_of(inner, depth + 1)
