"""What the ranks of a gang agree on after a step: its loss, and whether to stop or to save.

On CPU slots the ranks agree at once. On an accelerator the result exists only when the device has
finished the step. A rank that waited for it would leave its device without work until the next
step is launched. So the result travels on the device, behind the step, and the rank reads it after
launching the next step (see `Agreement.result`).
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

#: Seconds between two looks at whether the device has finished.
_LOOK_AGAIN_S = 0.005


@dataclass(frozen=True)
class StepFacts:
    """What is known of a step at once, without asking a device."""

    lr: float | None  # of the optimizer's first group; None if only the device knows it
    samples: int  # samples in all global batches of the step
    tokens: int | None  # tokens in the global batches, estimated from this rank's; None if none


@dataclass(frozen=True)
class StepResult:
    """What the ranks agree on after a step: the same on every rank."""

    loss: float  # mean over the step's global batches
    gradient_norm: float  # before clipping; NaN if nobody computed it
    stop: bool  # whether some rank was asked to stop
    save: bool  # whether rank 0 wants a checkpoint


class Agreement:
    """A step's result, which may not have arrived yet."""

    def __init__(
        self, rows: Callable[[], list[list[float]]], arrived: torch.Event | None = None
    ) -> None:
        """`rows` gives each rank's (weighed loss, weight, stop, save, norm) after `arrived`."""
        self._rows, self._arrived = rows, arrived
        self.facts: StepFacts | None = None

    def result(self) -> StepResult:
        """The result; waits for it if need be."""
        if self._arrived is not None:
            self._arrived.synchronize()
        # Summed in the order of ranks, so that the sum is the same to the last bit.
        rows = self._rows()
        value, count, stops, saves, _ = map(sum, zip(*rows, strict=True))
        return StepResult(
            loss=value / count,
            gradient_norm=rows[0][-1],  # equal on every rank
            stop=stops > 0,
            save=saves > 0,
        )

    def result_within(self, seconds: float) -> StepResult | None:
        """The result if it arrives within `seconds`; None if not, as when a peer is gone."""
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
        norm = math.nan  # until the device has computed it
    if gang.device.type == "cpu":
        # Loss and flags share one collective a step.
        value = sum(float(loss) * weight for loss, weight in counted)
        together = gang.sum([value, *rest])
        return Agreement(lambda: [[*together, norm]])
    device = gang.device
    row = torch.tensor([0.0, *rest, norm], dtype=torch.float64).pin_memory()
    row = row.to(device, non_blocking=True)
    for loss, weight in counted:
        # Two operations: a fused one would round only once, unlike other devices.
        row[0] += loss.to(device, torch.float64, non_blocking=True) * weight
    if gradient_norm is not None:
        row[-1] = gradient_norm
    rows = row[None]
    if gang.world_size > 1:
        gang.open()
        # Flat, since gloo gathers rows only into parts of their own shape.
        flat = torch.empty(gang.world_size * len(row), dtype=row.dtype, device=device)
        dist.all_gather_into_tensor(flat, row)
        rows = flat.view(gang.world_size, len(row))
    told = torch.empty(rows.shape, dtype=rows.dtype, pin_memory=True)
    told.copy_(rows, non_blocking=True)
    # A blocking event lets a waiting thread leave its core to others.
    arrived = torch.Event(device, blocking=True)
    arrived.record(torch.accelerator.current_stream(device))
    return Agreement(told.tolist, arrived)
