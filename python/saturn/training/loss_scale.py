"""The factor by which a loss is multiplied where gradients pass through fp16.

fp16 has no numbers below 6e-8, and small gradients would be lost. So the loss is scaled before the
backward pass, and the gradients are scaled back after it (Micikevicius et al., "Mixed Precision
Training", ICLR 2018). The factor is as large as it can be: it doubles after so many steps in a row,
and where a gradient overflows it is halved.

`torch.amp.GradScaler` leaves a step out that overflows. Whether one does depends on how a batch is
cut, so the same task would train differently under another strategy; here the step is taken again
with half the factor, until it fits, and the training is the same. Only where no factor helps is it
left out.

All ranks keep the same factor: whether gradients are finite is read off the norm of the whole
model's gradients, which is the same number on each. The factor goes into the checkpoint's manifest.
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
#: Steps in a row that were taken at once before the factor doubles: so a step in that many is
#: taken twice.
_GROWS_AFTER = 200


class Verdict(enum.Enum):
    """What becomes of a step."""

    TAKE = "take"
    #: Its gradients are to be computed again, with the factor that holds now.
    REPEAT = "repeat"
    LEAVE_OUT = "leave out"


class LossScale:
    """The factor of one task, from step to step."""

    def __init__(self) -> None:
        """As it is at a task's beginning."""
        self._factor = _FIRST
        self._steps_taken = 0
        #: The factor that the step at hand began with, where it is being repeated.
        self._began_with: float | None = None

    @property
    def factor(self) -> float:
        """What the loss is to be multiplied by: a power of two."""
        return self._factor

    def scale_back(self, parameters: Iterable[nn.Parameter]) -> None:
        """Divide the gradients of `parameters` by the factor."""
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        held = [one.to_local() if isinstance(one, DTensor) else one for one in gradients]
        if held:
            torch._foreach_mul_(held, 1.0 / self._factor)

    def judge(self, norm: float) -> Verdict:
        """What becomes of the step at hand; changes the factor.

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
            # It is not for want of range.
            self._factor = began_with
            return Verdict.LEAVE_OUT
        self._factor /= 2.0
        self._began_with = began_with
        return Verdict.REPEAT

    def state(self) -> dict[str, Any]:
        """What goes into the manifest, between steps."""
        return {"factor": self._factor, "steps_taken": self._steps_taken}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._factor = float(state["factor"])
        self._steps_taken = int(state["steps_taken"])
