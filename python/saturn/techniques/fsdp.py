"""`fsdp`: parameters, gradients and optimizer state split over the devices (FSDP2).

Each repeated layer is a unit of its own, gathered just before it runs and freed after; what is
left (embeddings, head) forms the root unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch.distributed.fsdp import fully_shard

from saturn.techniques.data_parallel import DataParallelModel
from saturn.techniques.interface import Knobs, ParallelModel, Setting, Technique
from saturn.techniques.layers import repeated_layers

if TYPE_CHECKING:
    from torch import nn

    from saturn.worker.gang import Gang


class Fsdp(Technique):
    """Fully sharded data parallel. No knobs yet."""

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        # Training so is possible, and a plan that says so is obeyed; a trial would only measure
        # `ddp` with copies added.
        if setting.gpus == 1:
            return "one device leaves nothing to split: the same as ddp, with more copying"
        return None

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        mesh = gang.mesh((gang.world_size,), names=("data",))
        # Layers first: each moves to the device already split, so the whole model never has to
        # fit there at once.
        for layer in repeated_layers(module):
            fully_shard(layer, mesh=mesh)
        fully_shard(module, mesh=mesh)
        return DataParallelModel(module, module, gang)
