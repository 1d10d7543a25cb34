"""`offload`: a model larger than its device trains on one device, with its layers streamed.

Parameters, gradients and optimizer state live in the slow tier (see `slow_tier`), and the optimizer
steps there. The repeated layers come to the device one at a time, in the forward and again in the
backward pass (see `streaming`). That costs a second forward. Parameters outside the layers
(embeddings, head) are on the device from the start of a forward to the end of its backward. Buffers
stay on the device.

The gang has one rank only. Knob: `attention`, see `attention`.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

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
from saturn.techniques.model import attention, recompute
from saturn.techniques.model.changed_parameters import ForwardWatch
from saturn.techniques.model.layers import repeated_layers
from saturn.techniques.offload.courier import Courier
from saturn.techniques.offload.slow_tier import SlowTier
from saturn.techniques.offload.streaming import Streamed, StreamedLayers

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractContextManager

    import torch
    from torch import Tensor, nn

    from saturn.rank.gang import Gang


class Offload(Technique):
    """Layers streamed through one device."""

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        if (reason := _reason_against(module, setting.gpus)) is not None:
            return reason
        # A user's plan is obeyed even so; but a trial would only measure `ddp` with copies added,
        # so none is made.
        if (reason := memory_bounds.room_to_spare(module, setting)) is not None:
            return f"streaming can only be slower than ddp: {reason}"
        return None

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        return attention.with_back_ends([{}], module, setting)

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int:
        return memory_bounds.streamed_bytes(module)

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        if (reason := _reason_against(module, gang.world_size)) is not None:
            raise NotApplicable(reason)
        attention.set_back_end(module, knobs)
        recompute.without_cache(module)
        return _OffloadedModel(module, gang)


class _OffloadedModel(DataParallelModel):
    """The model of the gang's only rank."""

    saves_memory = True

    def __init__(self, module: nn.Module, gang: Gang) -> None:
        super().__init__(module, module, gang)
        self._tier = SlowTier(gang.device, gang.scratch)
        self._courier = Courier.to(gang.device)
        layers = repeated_layers(module)
        inside = {id(parameter) for layer in layers for parameter in layer.parameters()}
        rest = [p for p in module.parameters() if id(p) not in inside]
        StreamedLayers(layers, self._tier, self._courier)
        self._rest = Streamed(rest, self._tier)
        self._named_rest = [(n, p) for n, p in module.named_parameters() if id(p) not in inside]
        self._watch = ForwardWatch()  # of the parameters outside the layers
        self._tier.moved()
        _move_buffers(module, gang.device)

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        rest = self._rest
        # Gradients of the step's earlier batches are in the slow tier. They are set aside, because
        # autograd can only add gradients on the same device.
        before = [parameter.grad for parameter in rest.trainable]
        for parameter in rest.trainable:
            parameter.grad = None
        with rest.on_device(self._courier.bring(rest.data())):
            self._watch.begin(self._named_rest)
            loss = super().forward_backward(batch, objective, share)
            if (name := self._watch.changed()) is not None:
                raise NotApplicable(
                    f"a forward changes the parameter `{name}` itself; here it runs on a copy, "
                    "and the change would be lost"
                )
            found = [parameter.grad for parameter in rest.trainable]
            for parameter in rest.trainable:
                parameter.grad = None
        for parameter, gradient in zip(rest.trainable, before, strict=True):
            parameter.grad = gradient
        rest.add_gradients(found, self._courier)
        self._courier.finish()
        return loss

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        with self._rest.on_device(self._courier.bring(self._rest.data())):
            yield self.module
        self._courier.finish()

    def optimizer_memory(self) -> AbstractContextManager[Any]:
        return self._tier.optimizer_memory()


def _reason_against(module: nn.Module, gpus: int) -> str | None:
    if gpus > 1:
        return f"layers are streamed through one device, and there are {gpus}: see fsdp"
    return recompute.reason_against(module)


def _move_buffers(module: nn.Module, device: torch.device) -> None:
    moved: dict[int, Tensor] = {}
    for part in module.modules():
        for name, buffer in part._buffers.items():
            if buffer is not None:
                part._buffers[name] = moved.setdefault(id(buffer), buffer.to(device))
