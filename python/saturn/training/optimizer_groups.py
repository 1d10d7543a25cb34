"""What an optimizer keeps in its `param_groups`: numbers that it changes as it goes.

Most keep none. Some do: an estimate of the step size, a count of steps, a learning rate that they
schedule themselves. A fresh optimizer is built with the task's settings, so only what differs from
those is worth keeping, and goes into the checkpoint's manifest as plain data. Tensors in groups
are not kept.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch


class OptimizerGroups:
    """The groups of one optimizer, made while it is fresh."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._fresh = [_plain(group) for group in optimizer.param_groups]

    def changed(self) -> list[dict[str, Any]]:
        """For each group the plain values that the optimizer has changed or added."""
        return [
            {
                key: value
                for key, value in _plain(group).items()
                if key not in fresh or fresh[key] != value
            }
            for group, fresh in zip(self._optimizer.param_groups, self._fresh, strict=True)
        ]

    def restore(self, changed: Sequence[Mapping[str, Any]]) -> None:
        """Set all plain values to what they were when `changed` was asked for.

        Raises `ValueError` where the optimizer has another number of groups.
        """
        groups = self._optimizer.param_groups
        if len(changed) != len(groups):
            raise ValueError(
                f"the checkpoint holds the settings of {len(changed)} groups of parameters; the "
                f"optimizer has {len(groups)}"
            )
        for group, fresh, values in zip(groups, self._fresh, changed, strict=True):
            group.update(copy.deepcopy(fresh))
            for key, value in values.items():
                # JSON knows no tuples.
                group[key] = tuple(value) if isinstance(fresh.get(key), tuple) else value


def _plain(group: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of what JSON can hold of a group, without its parameters."""
    return {
        key: copy.deepcopy(value)
        for key, value in group.items()
        if key != "params" and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(inner) for inner in value)
    return value is None or isinstance(value, bool | int | float | str)
