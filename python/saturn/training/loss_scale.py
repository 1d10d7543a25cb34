"""The factor that multiplies a loss whose gradients pass through fp16.

fp16 has no numbers below 6e-8, so small gradients would be lost. The loss is therefore scaled
before the backward pass, and the gradients are scaled back after it (Micikevicius et al., "Mixed
Precision Training", ICLR 2018). The factor is kept as large as possible: it doubles after a number
of steps in a row, and is halved when a gradient overflows.

`torch.amp.GradScaler` skips a step that overflows. Whether a step overflows depends on how its
batch is sliced, so a task would train differently under another strategy. Here the step is repeated
with half the factor until it fits, and the training is the same. Only a step that no factor helps
is skipped.

All ranks keep the same factor: whether gradients are finite is read off the norm of the whole
model's gradients, which is equal on all ranks. The factor goes into the checkpoint's manifest.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import DTensor

_FIRST, _LEAST = 4096.0, 1.0
#: The factor doubles after this many steps in a row without a repeat. So about one step in this
#: many is taken twice.
_GROWS_AFTER = 200


class Verdict(enum.Enum):
    """What to do with a step."""

    TAKE = "take"
    #: Compute the step's gradients again, with the factor that holds now.
    REPEAT = "repeat"
    LEAVE_OUT = "leave out"


class LossScale:
    """The factor of one task, across steps."""

    def __init__(self) -> None:
        """Start with the factor of a task's first step."""
        self._factor = _FIRST
        self._steps_taken = 0
        #: The factor that the present step began with, if the step is being repeated.
        self._began_with: float | None = None

    @property
    def factor(self) -> float:
        """The factor for the loss: a power of two."""
        return self._factor

    def scale_back(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divide the gradients of `parameters` by the factor."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        held = [one.to_local() if isinstance(one, DTensor) else one for one in gradients]
        if held:
            torch._foreach_mul_(held, 1.0 / self._factor)

    def judge(self, norm: float) -> Verdict:
        """Decide what to do with the present step; may change the factor.

        `norm` is the 2-norm of the whole model's gradients, scaled back.
        """
        began_with, self._began_with = self._began_with, None
        if math.isfinite(norm):
            self._steps_taken = 0 if began_with is not None else self._steps_taken + 1
            if self._steps_taken == _GROWS_AFTER:
                self._factor *= 2.0
                self._steps_taken = 0
            return Verdict.TAKE
        began_with = began_with or self._factor
        if self._factor <= _LEAST:
            # The lack of range is not the cause, so no smaller factor helps.
            self._factor = began_with
            return Verdict.LEAVE_OUT
        self._factor /= 2.0
        self._began_with = began_with
        return Verdict.REPEAT

    def state(self) -> dict[str, Any]:
        """The entry in the manifest, between steps."""
        return {"factor": self._factor, "steps_taken": self._steps_taken}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `state` returned."""
        self._factor = float(state["factor"])
        self._steps_taken = int(state["steps_taken"])
