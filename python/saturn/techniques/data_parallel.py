"""What data-parallel techniques share: every rank runs the whole forward on its own slice.

Holds the arithmetic that makes uneven slices count right where the framework *averages* gradients
over ranks, as DDP and FSDP2 do. Techniques that sum gradients must not use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from saturn.techniques.interface import Objective, ParallelModel
from saturn.techniques.model import buffers

if TYPE_CHECKING:
    from torch import Tensor, nn

    from saturn.rank.gang import Gang
    from saturn.techniques.sharding import Sharding


class DataParallelModel(ParallelModel):
    """`call` runs the forward of `module` (its wrapper, or itself) on this rank's slice."""

    def __init__(self, module: nn.Module, call: Callable[..., Any], gang: Gang) -> None:
        self.module = module
        self.data_rank = gang.rank
        self.data_size = gang.world_size
        self._call = call

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        loss = objective.loss_of(self._call, batch)
        # Averaging divides by the number of ranks, so the share is multiplied by it.
        factor = share * self.data_size
        torch.autograd.backward(loss if factor == 1.0 else loss * factor)
        return loss.detach()

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        # As in a checkpoint, buffers are those of rank 0: the same whichever rank has a batch.
        self.before_save()
        yield self.module

    def before_save(self) -> None:
        # A checkpoint takes the buffers of rank 0 on every rank, never a mixture. That they are
        # equal to begin with is seen to here too: nothing wrong is ever saved.
        if self.data_size > 1:
            buffers.make_equal(self.module)


class ShardedModel(DataParallelModel):
    """One that FSDP2 has split, but for its scalars; without `sharding`, a plain one."""

    def __init__(self, module: nn.Module, gang: Gang, sharding: Sharding | None) -> None:
        super().__init__(module, module, gang)
        self._sharding = sharding

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        loss = super().forward_backward(batch, objective, share)
        if self.is_last_of_step and self._sharding is not None:
            self._sharding.average_scalars()
        return loss

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        with super().evaluating() as module:
            yield module
        if self._sharding is not None:
            # A backward would have split it again.
            self._sharding.release()
