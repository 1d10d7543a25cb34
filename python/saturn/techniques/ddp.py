"""`ddp`: a whole copy of the model on each device, gradients averaged.

With one rank it is plain training on a single device: no wrapper and no process group. Knobs:

* `find_unused_parameters` (default false): for models that skip layers;
* `activation_checkpointing` (default false): see `recompute`;
* `attention`: see `attention`;
* `compile`: see `compiled`.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from saturn.rank.exceptions import PartsSkippedError
from saturn.techniques import memory_bounds
from saturn.techniques.data_parallel import DataParallelModel
from saturn.techniques.interface import (
    Knobs,
    NotApplicable,
    Objective,
    ParallelModel,
    Setting,
    Technique,
)
from saturn.techniques.model import attention, compiled, layers, recompute
from saturn.techniques.model.recompute import ACTIVATION_CHECKPOINTING

if TYPE_CHECKING:
    from torch import Tensor

    from saturn.rank.gang import Gang

#: A part of torch's message if some parameter took no part in the loss.
_UNUSED_PARAMETERS = "find_unused_parameters"
#: The part of that message with the numbers of these parameters.
_LISTED = re.compile(r"did not receive grad for rank \d+: ([\d ]+)")

#: Buffers are made equal only for a save, since doing so in each forward costs a collective a step.
#: The option's name depends on torch's version.
_NO_BUFFER_SYNC: dict[str, Any] = (
    {"forward_sync_buffers": False}
    if "forward_sync_buffers" in inspect.signature(DistributedDataParallel).parameters
    else {"broadcast_buffers": False}
)


class Ddp(Technique):
    """Distributed data parallel."""

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        sets = attention.with_back_ends([{}], module, setting)
        return compiled.with_compiled(sets, setting)

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        if recompute.reason_against(module) is not None:
            return []
        return [attention.with_back_ends([{ACTIVATION_CHECKPOINTING: True}], module, setting)]

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int:
        return memory_bounds.whole_model_bytes(module, setting)

    def retry_knobs(self, knobs: Knobs, error: str) -> Knobs | None:
        # Finding unused parameters walks over the graph at every step, so it is only done if
        # training fails without it.
        if _UNUSED_PARAMETERS in error and not knobs.get(_UNUSED_PARAMETERS):
            return {**knobs, _UNUSED_PARAMETERS: True}
        return None

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        attention.set_back_end(module, knobs)
        module.to(gang.device)
        compiled.compile_layers(module, knobs)
        if knobs.get(ACTIVATION_CHECKPOINTING, False):
            recompute.checkpoint_layers(module, gang.device)
        if gang.world_size == 1:
            return _Whole(module, module, gang)
        gang.open()
        rehearsed = _Rehearsed(module)
        wrapper = DistributedDataParallel(
            rehearsed,
            device_ids=[gang.device] if gang.device.type == "cuda" else None,
            **_NO_BUFFER_SYNC,
            gradient_as_bucket_view=True,
            find_unused_parameters=bool(knobs.get(_UNUSED_PARAMETERS, False)),
        )
        rehearsed.rehearse(wrapper)
        return _DdpModel(module, wrapper, rehearsed, gang)


class _Whole(DataParallelModel):
    """The model itself, on a single device."""

    leaves_only_gradients = True
    keeps_sums = True


class _DdpModel(DataParallelModel):
    """Combines gradients once a step: those of a step's earlier batches stay on their rank."""

    def __init__(
        self,
        module: nn.Module,
        wrapper: DistributedDataParallel,
        rehearsed: _Rehearsed,
        gang: Gang,
    ) -> None:
        super().__init__(module, wrapper, gang)
        self._wrapper, self._rehearsed = wrapper, rehearsed

    def accumulating(self) -> AbstractContextManager[None]:
        return self._wrapper.no_sync()

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        self._rehearsed.is_called = False
        loss = super().forward_backward(batch, objective, share)
        if self.is_last_of_step:
            if not self._rehearsed.is_called:
                self._average_gradients()
            elif not self._wrapper.find_unused_parameters:
                self._expect_gradients()
        return loss

    def _average_gradients(self) -> None:
        """Average the step's gradients, as DDP does where the loss calls the wrapper.

        A loss may call the module itself instead. A trainer's `compute_loss` does so if it calls
        `self.model` or unwraps the model. DDP then does nothing, and doesn't say so.
        """
        trained = [parameter for parameter in self.module.parameters() if parameter.requires_grad]
        device = trained[0].device
        has_any = torch.tensor([one.grad is not None for one in trained], device=device).int()
        dist.all_reduce(has_any, dist.ReduceOp.MAX)
        for parameter, is_used in zip(trained, has_any.tolist(), strict=True):
            if not is_used:
                continue
            if parameter.grad is None:  # another rank has used it
                parameter.grad = torch.zeros_like(parameter)
            dist.all_reduce(parameter.grad)
            parameter.grad.div_(self.data_size)

    def _expect_gradients(self) -> None:
        """Raise `PartsSkippedError` if this rank lacks gradients that other ranks may wait for."""
        # The next forward would ask the same, but before it the ranks exchange other numbers. Those
        # who wait for gradients would take them for gradients.
        try:
            self._wrapper.reducer._check_reducer_finalized()
        except RuntimeError as error:
            raise PartsSkippedError(
                f"rank {dist.get_rank()} did not use parameters that other ranks may have used, "
                f"for the first time: from here on `{_UNUSED_PARAMETERS}` is true. Training goes "
                "on from the last checkpoint",
                whole_layers=self._skips_layers(str(error)),
            ) from None

    def _skips_layers(self, error: str) -> bool:
        """Whether a whole layer is among the unused parameters that `error` lists by number."""
        listed = _LISTED.search(error)
        if listed is None:
            return True  # unknown, and where whole layers are skipped, more is refused
        trained = [p for p in self.module.parameters() if p.requires_grad]
        unused = {id(trained[int(number)]) for number in listed[1].split()}
        return any(
            unused.issuperset(map(id, parameters))
            for layer in layers.repeated_layers(self.module)
            if (parameters := [p for p in layer.parameters() if p.requires_grad])
        )

    def expect_skipped_parts(self) -> None:
        if not self._wrapper.find_unused_parameters:
            # `retry_knobs` knows the word.
            raise NotApplicable(f"some devices use parts that others don't: {_UNUSED_PARAMETERS}")


class _Rehearsed(nn.Module):
    """Runs `module`, after one rehearsal: a backward over all parameters and nothing else.

    DDP rearranges its buckets after the first backward, which changes the order in which gradients
    of three or more ranks are added. Without the rehearsal, the first training step of each attempt
    would add in another order. A resumed task would then differ in its last bits from one that was
    never stopped.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._rehearsing = False
        #: Whether a forward with gradients has run; to be reset by whoever asks.
        self.is_called = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        self.is_called |= torch.is_grad_enabled()
        if not self._rehearsing:
            return self.module(*args, **kwargs)
        sums = [p.sum() for p in self.module.parameters() if p.requires_grad]
        # Autograd takes the last sum first, which is the order of a real backward.
        return torch.stack([each.float() for each in sums]).sum() * 0.0

    def rehearse(self, wrapper: DistributedDataParallel) -> None:
        """Run the rehearsal; the next forward of `wrapper` arranges its buckets for good."""
        self._rehearsing = True
        # On a GPU, torch fails without an argument that it can move there.
        torch.autograd.backward(wrapper(torch.empty(0)))
        wrapper.zero_grad(set_to_none=True)
        self._rehearsing = False
