"""Whether tasks that train together take the steps that each of them takes alone.

Models are not trusted: their own code may mix the rows of a batch, or draw random numbers, in ways
that no rule finds. So before a group trains, its first steps are compared with those of each task
alone. There are two steps, because adapters begin with a product of zero: only the second step's
loss shows the first step's gradients, and only its gradients are those of both factors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from saturn.data.slices import Position
from saturn.fused.group import Group
from saturn.fused.refusal import CannotFuse, Reason
from saturn.rank.gang import Gang
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.ddp import Ddp
from saturn.techniques.interface import Knobs, Technique
from saturn.training.stepper import Stepper

_STEPS = 2
#: How far numbers may be apart, in parts of the largest. On CPUs the bits are the same; kernels of
#: other devices add in an order that depends on the number of rows.
_APART = {"cpu": 0.0}
_APART_ELSEWHERE = 1e-5


def check(
    definitions: Sequence[TaskDefinition],
    gang: Gang,
    knobs: Knobs,
    note: Callable[[str], None],
) -> None:
    """Take the first steps of each task alone, and of all together, from the tasks' beginnings.

    Raises `CannotFuse` if they differ, and whatever a task raises by itself.
    """
    tolerance = _APART.get(gang.device.type, _APART_ELSEWHERE)
    alone = [_first_steps(each, Ddp(), gang, knobs, note) for each in definitions]
    group = Group(gang.device)

    def work(definition: TaskDefinition) -> Callable[[Technique], list[Tensor]]:
        return lambda technique: _first_steps(definition, technique, gang, knobs, note)

    members = [group.add(each.name, work(each)) for each in definitions]
    while group.round():
        pass
    for member, expected in zip(members, alone, strict=True):
        if member.error is not None:
            cause = member.error.__cause__
            raise cause if isinstance(cause, CannotFuse) else member.error
        for number, (found, wanted) in enumerate(zip(member.result, expected, strict=True)):
            apart = _apart(found, wanted)
            if not apart <= tolerance:
                what = f"the loss of step {number + 1}" if number < _STEPS else "a trained weight"
                raise CannotFuse(
                    Reason.OTHER_NUMBERS,
                    f"{what} of `{member.name}` is {apart:.1e} away from training alone",
                )


def _first_steps(
    definition: TaskDefinition,
    technique: Technique,
    gang: Gang,
    knobs: Knobs,
    note: Callable[[str], None],
) -> list[Tensor]:
    """The losses of the first steps, then the trained weights."""
    stepper = Stepper(definition, technique, gang, knobs, note=note)
    pieces = stepper.pieces(Position())
    losses = []
    for _ in range(_STEPS):
        result = stepper.step(stepper.stage(next(pieces)), stop=False, save=False).result()
        losses.append(torch.tensor(result.loss))
    pieces.close()
    parameters = stepper.parallel.module.parameters()
    return [*losses, *(each.detach().clone() for each in parameters if each.requires_grad)]


def _apart(one: Tensor, other: Tensor) -> float:
    """The largest difference, in parts of the largest number; equal numbers, and NaNs, are 0."""
    if torch.allclose(one, other, rtol=0, atol=0, equal_nan=True):
        return 0.0
    return float((one - other).abs().max() / other.abs().max())
