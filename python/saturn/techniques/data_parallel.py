"""What data-parallel techniques share: every rank runs the whole forward on its own slice.

DDP and FSDP2 *average* gradients over ranks; the arithmetic here makes uneven slices count right
all the same. Techniques that sum gradients must not use it.
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
    """Runs `call`, which is `module` or its wrapper, on this rank's slice."""

    def __init__(self, module: nn.Module, call: Callable[..., Any], gang: Gang) -> None:
        self.module = module
        self.data_rank = gang.rank
        self.data_size = gang.world_size
        self._call = call

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        loss = objective.loss_of(self._call, batch)
        # Averaging divides by the number of ranks, so the share is multiplied by that number.
        factor = share * self.data_size
        torch.autograd.backward(loss if factor == 1.0 else loss * factor)
        return loss.detach()

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        # As in a checkpoint, rank 0's buffers are used, so that all ranks evaluate alike.
        self.before_save()
        yield self.module

    def before_save(self) -> None:
        # A checkpoint has rank 0's buffers, never a mixture. If the buffers of ranks differ more
        # than they may, this raises, so a wrong state is never saved.
        if self.data_size > 1:
            buffers.make_equal(self.module)


class ShardedModel(DataParallelModel):
    """A module that FSDP2 has split, except for scalars; without `sharding`, a plain module."""

    def __init__(self, module: nn.Module, gang: Gang, sharding: Sharding | None) -> None:
        super().__init__(module, module, gang)
        self._sharding = sharding

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        loss = super().forward_backward(batch, objective, share)
        if self.is_last_of_step and self._sharding is not None:
            self._sharding.average_scalars()
            self._sharding.step_ended()
        return loss

    def expect_skipped_parts(self) -> None:
        if self._sharding is not None:
            self._sharding.expect_skipped_parts()

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        with super().evaluating() as module:
            yield module
        if self._sharding is not None:
            # Without a backward pass, nothing else would split the parameters again.
            self._sharding.release()
