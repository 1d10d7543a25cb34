"""Which split parameters get gradients in a step: the same on all ranks and in all steps, or not.

If some ranks use parts of a model that others don't, such as experts, FSDP2 would add up gradients
of different parts. It can count a missing gradient as zeros instead. But a part that no rank has
used would then have a gradient of zeros, where on one device it has none: an optimizer that makes
no step there would decay the weights, or move them by momentum.

So each rank follows which parameters get gradients. Unless a model is known to skip parts, a change
ends the attempt (`PartsSkippedError`). If it is known, the ranks tell each other after each step
what they have used, and zeros of what nobody has used are taken away.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from saturn.rank.exceptions import PartsSkippedError

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class UseOfParameters:
    """Follows which of one rank's parameters get gradients."""

    def __init__(self, root: nn.Module, units: Iterable[nn.Module], data: DeviceMesh) -> None:
        """`root` has been split over `data`; it and its `units` are gathered one by one."""
        self._data = data
        self._split = {id(parameter) for parameter in root.parameters()}
        #: Module and name of each parameter that trains, and its number in the order of all.
        self._numbers: dict[tuple[nn.Module, str], int] = {}
        self._parameters: list[nn.Parameter] = []
        numbers: dict[int, int] = {}
        for part in root.modules():
            for name, parameter in part._parameters.items():
                if parameter is not None and parameter.requires_grad:
                    if id(parameter) not in numbers:
                        numbers[id(parameter)] = len(self._parameters)
                        self._parameters.append(parameter)
                    self._numbers[part, name] = numbers[id(parameter)]
        self._of_units = [
            {numbers[id(each)] for each in unit.parameters() if each.requires_grad}
            for unit in units
        ]
        #: The gathered parameters that are followed, by number. FSDP2 gathers into the same tensors
        #: each time.
        self._followed: dict[int, torch.Tensor] = {}
        self._used = [True] * len(self._parameters)  # what can't be followed counts as used
        #: What the first step has used, on every rank alike.
        self._first: list[bool] | None = None
        self._expects_skips = False
        for unit in (root, *units):
            unit.register_forward_pre_hook(self._follow)

    def expect_skips(self) -> None:
        """From now on, ranks and steps may use different parameters."""
        self._expects_skips = True

    def step_ended(self) -> None:
        """Take away gradients of what no rank has used since the last call.

        Every rank calls this after a step's last backward. Raises `PartsSkippedError` if ranks or
        steps have come to use different parameters, and that was not expected.
        """
        used = list(self._used)
        if self._expects_skips:
            used = self._over_ranks(used, dist.ReduceOp.MAX)
        elif self._first is None:
            self._first = self._over_ranks(used, dist.ReduceOp.MAX)
            least = self._over_ranks(used, dist.ReduceOp.MIN)
            self._expect_equal(self._first, least)
        else:
            self._expect_equal(self._first, used)
        for parameter, is_used in zip(self._parameters, used, strict=True):
            if not is_used:
                parameter.grad = None
        for number in self._followed:
            self._used[number] = False

    def _over_ranks(self, used: Sequence[bool], operation: Any) -> list[bool]:
        # In host memory, so that no host waits for its device.
        flags = torch.tensor(used, dtype=torch.int32)
        for group in self._data.get_all_groups():
            dist.all_reduce(flags, operation, group=group)
        return [bool(flag) for flag in flags.tolist()]

    def _expect_equal(self, one: Sequence[bool], other: Sequence[bool]) -> None:
        pairs = enumerate(zip(one, other, strict=True))
        if apart := {number for number, (first, second) in pairs if first != second}:
            raise PartsSkippedError(
                f"rank {dist.get_rank()} saw for the first time that not all devices use the same "
                "parameters in all steps: from here on that is expected. Training goes on from the "
                "last checkpoint",
                whole_layers=any(own and own <= apart for own in self._of_units),
            )

    def _follow(self, unit: nn.Module, inputs: Any) -> None:
        # Without gradients, as in an evaluation, what is gathered can't be followed.
        if len(self._followed) == len(self._parameters) or not torch.is_grad_enabled():
            return
        for part in unit.modules():
            for name, parameter in part._parameters.items():
                number = self._numbers.get((part, name))
                if parameter is None or number is None or number in self._followed:
                    continue
                if id(parameter) in self._split or not parameter.is_leaf:
                    continue  # not gathered now, or replaced by something computed from it
                self._followed[number], self._used[number] = parameter, False
                follow: Any = parameter.register_post_accumulate_grad_hook
                follow(partial(self._note, number))

    def _note(self, number: int, parameter: torch.Tensor) -> None:
        self._used[number] = True
