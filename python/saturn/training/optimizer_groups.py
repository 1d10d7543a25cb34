"""Values in an optimizer's `param_groups` that the optimizer changes itself.

Most optimizers change none. Some keep an estimate of the step size there, a count of steps, or a
learning rate that they schedule. A fresh optimizer is built with the task's settings, so only
values that differ from those are kept. They go into the checkpoint's manifest as plain data;
tensors in groups are not kept.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from saturn.rank.exceptions import NotApplicable
from saturn.rank.gang import Gang


class OptimizerGroups:
    """The groups of one optimizer; made while the optimizer is fresh."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self._optimizer = optimizer
        self._fresh = [plain_of(group) for group in optimizer.param_groups]

    def changed(self) -> list[dict[str, Any]]:
        """For each group, the plain values that the optimizer has changed or added."""
        return [
            {
                key: value
                for key, value in plain_of(group).items()
                if key not in fresh or fresh[key] != value
            }
            for group, fresh in zip(self._optimizer.param_groups, self._fresh, strict=True)
        ]

    def expect_equal(self, gang: Gang) -> None:
        """Raise `NotApplicable`, on every rank, if the changed values differ between ranks."""
        if gang.world_size == 1:
            return
        of_ranks = gang.collect(self.changed())
        for number, groups in enumerate(zip(*of_ranks, strict=False)):
            if any(group != groups[0] for group in groups):
                keys = {key for one in groups for key in one if one[key] != groups[0].get(key)}
                raise NotApplicable(
                    f"the optimizer's {', '.join(f'`{key}`' for key in sorted(keys))} in group "
                    f"{number} has come to differ between the devices: it follows all parameters "
                    "that the optimizer has, and each device has only a part of the model"
                )

    def restore(self, changed: Sequence[Mapping[str, Any]]) -> None:
        """Set all plain values to those that they had when `changed` was called.

        Raises `ValueError` if the optimizer has another number of groups.
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
                # JSON turned tuples into lists.
                group[key] = tuple(value) if isinstance(fresh.get(key), tuple) else value


def plain_of(group: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of a group's values that JSON can hold, without its parameters."""
    return {
        key: copy.deepcopy(value)
        for key, value in group.items()
        if key != "params" and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return all(_is_plain(inner) for inner in value)
    return value is None or isinstance(value, bool | int | float | str)
