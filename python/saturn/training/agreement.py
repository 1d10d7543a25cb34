"""What the ranks of a gang agree on after a step: its loss, and whether to stop or to save.

On CPU slots it is known at once. On an accelerator it is known when the device has come to it, and
a rank that waited for that would leave its device without work until the next step is given to it.
So there all of it travels on the device, behind the step, and is read when the next step has been
given to the device as well (see `Agreement.result`).
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from saturn.rank.gang import Gang

#: Between two looks at whether the device has come to it.
_LOOK_AGAIN_S = 0.005


@dataclass(frozen=True)
class StepFacts:
    """What is known of a step before its results are there, without asking a device."""

    lr: float | None  # of the optimizer's first group; None where only the device knows
    samples: int  # of all its global batches
    tokens: int | None  # in these, as far as this rank's slices tell; None where there are none


@dataclass(frozen=True)
class StepResult:
    """What the ranks agree on after a step: the same on every rank."""

    loss: float  # mean over the step's global batches
    gradient_norm: float  # before clipping; NaN where nobody has computed it
    stop: bool  # some rank was asked to stop
    save: bool  # rank 0 wants a checkpoint


class Agreement:
    """A step's result, which may still be under way."""

    def __init__(
        self, rows: Callable[[], list[list[float]]], arrived: torch.Event | None = None
    ) -> None:
        """`rows` gives ranks' (weighed loss, weight, stop, save, norm), once `arrived` happened."""
        self._rows, self._arrived = rows, arrived
        self.facts: StepFacts | None = None

    def result(self) -> StepResult:
        """Wait for it, if need be."""
        if self._arrived is not None:
            self._arrived.synchronize()
        # In the order of ranks, whichever way they came together: the same sum to the last bit.
        rows = self._rows()
        value, count, stops, saves, _ = map(sum, zip(*rows, strict=True))
        return StepResult(
            loss=value / count,
            gradient_norm=rows[0][-1],  # equal on every rank
            stop=stops > 0,
            save=saves > 0,
        )

    def result_within(self, seconds: float) -> StepResult | None:
        """What has arrived, or does so soon; None where it doesn't, as where a peer is gone."""
        until = time.monotonic() + seconds
        while self._arrived is not None and not self._arrived.query():
            if time.monotonic() > until:
                return None
            time.sleep(_LOOK_AGAIN_S)
        return self.result()


def agree(
    gang: Gang,
    losses: Sequence[tuple[Tensor | None, float]],
    *,
    count: float | None = None,
    stop: bool,
    save: bool,
    gradient_norm: Tensor | None = None,
) -> Agreement:
    """Bring together the (loss, weight) of the slices, and two flags, of this and all other ranks.

    Every rank calls this function at the same place of a step. A loss is None where another rank
    reports the loss of that slice, as in a pipeline. The step's loss is the weighted sum of all
    ranks' losses divided by the sum of all ranks' `count`; a rank's `count` is the sum of its
    weights by default. `gradient_norm` is each rank's own and is only passed on.
    """
    counted = [(loss, weight) for loss, weight in losses if loss is not None and weight]
    rest = [sum(weight for _, weight in counted) if count is None else count, stop, save]
    if gradient_norm is None:
        norm = math.nan
    elif gradient_norm.device.type == "cpu":
        norm, gradient_norm = float(gradient_norm), None
    else:
        norm = math.nan  # until the device has said it
    if gang.device.type == "cpu":
        # Loss and flags travel together: one collective a step.
        value = sum(float(loss) * weight for loss, weight in counted)
        together = gang.sum([value, *rest])
        return Agreement(lambda: [[*together, norm]])
    device = gang.device
    row = torch.tensor([0.0, *rest, norm], dtype=torch.float64).pin_memory()
    row = row.to(device, non_blocking=True)
    for loss, weight in counted:
        # Two operations: a fused one would round once, and differ from what other devices say.
        row[0] += loss.to(device, torch.float64, non_blocking=True) * weight
    if gradient_norm is not None:
        row[-1] = gradient_norm
    rows = row[None]
    if gang.world_size > 1:
        gang.open()
        rows = torch.empty(gang.world_size, len(row), dtype=row.dtype, device=device)
        dist.all_gather_into_tensor(rows, row)
    told = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
    told.copy_(rows, non_blocking=True)
    # The thread that waits for it leaves its core to others meanwhile.
    arrived = torch.Event(device, blocking=True)
    arrived.record(torch.accelerator.current_stream(device))
    return Agreement(told.tolist, arrived)
