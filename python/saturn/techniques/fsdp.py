"""`fsdp`: parameters, gradients and optimizer state split over the devices (FSDP2).

Each repeated layer is a unit, gathered just before it runs and freed after. All other modules
(embeddings, head) form the root unit. Parameters without a dimension, which torch refuses to split,
stay whole on every rank. Knobs:

* `reshard_after_forward` (default true): free a layer after its forward and gather it again for its
  backward. False keeps the layer, which saves a gathering and costs memory;
* `activation_checkpointing` (default false): see `recompute`;
* `cpu_offload` (default false): shards, gradients and optimizer state stay in the host's memory,
  and the optimizer steps there;
* `replicate_across_nodes` (default false), for gangs on several nodes with equally many devices:
  the state is split within each node, and all nodes hold copies. So only gradients cross the
  network;
* `attention`: see `attention`;
* `compile`: see `compiled`.

Under the precision `bf16-params`, layers are gathered and computed in bf16. Gradients are summed
over the devices in float32, and each device keeps its part of the parameters in float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy

from saturn.tasks.definition import BF16_PARAMS
from saturn.techniques import memory_bounds
from saturn.techniques.data_parallel import ShardedModel
from saturn.techniques.interface import Knobs, NotApplicable, ParallelModel, Setting, Technique
from saturn.techniques.model import attention, compiled, recompute
from saturn.techniques.model.layers import repeated_layers
from saturn.techniques.model.local_copies import WholeScalars
from saturn.techniques.model.recompute import ACTIVATION_CHECKPOINTING
from saturn.techniques.nodes import are_alike
from saturn.techniques.sharding import Sharding

if TYPE_CHECKING:
    from torch import nn

    from saturn.rank.gang import Gang

RESHARD_AFTER_FORWARD = "reshard_after_forward"
CPU_OFFLOAD = "cpu_offload"
REPLICATE_ACROSS_NODES = "replicate_across_nodes"


class Fsdp(Technique):
    """Fully sharded data parallel."""

    precisions = Technique.precisions | {BF16_PARAMS}

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        # A user's plan with one device is obeyed. But if using the host's memory gains nothing, a
        # trial would only measure `ddp` with copies added, so it is not made.
        if setting.gpus > 1 or setting.precision == BF16_PARAMS:
            return None
        reason = "a CPU slot's memory is the host's"
        if setting.device_kind == "cuda":
            reason = memory_bounds.room_to_spare(module, setting) or ""
        if not reason:
            return None
        return (
            "one device leaves nothing to split: the same as ddp, with more copying. Offloading "
            f"to the host gains nothing either: {reason}"
        )

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        sets: list[Knobs] = [{}, {RESHARD_AFTER_FORWARD: False}]
        if setting.gpus == 1:
            # On one device, only layers that are gathered in another type have memory to free.
            sets = sets if setting.precision == BF16_PARAMS else [{CPU_OFFLOAD: True}]
        if are_alike(setting.node_gpus):
            sets.append({REPLICATE_ACROSS_NODES: True})
        sets = attention.with_back_ends(sets, module, setting)
        return compiled.with_compiled(sets, setting)

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        recomputed: Knobs = {}
        if recompute.reason_against(module) is None:
            recomputed = {ACTIVATION_CHECKPOINTING: True}
        # A CPU slot's memory is the host's, so shards are in it already.
        offloaded: Knobs = {CPU_OFFLOAD: True} if setting.device_kind == "cuda" else {}
        # On one device, `knob_sets` has offloaded already.
        one_device = setting.gpus == 1 and setting.precision != BF16_PARAMS
        single = [] if one_device else [knobs for knobs in (recomputed, offloaded) if knobs]
        both = [{**recomputed, **offloaded}] if recomputed and offloaded else []
        rungs = (single, both)
        return [attention.with_back_ends(rung, module, setting) for rung in rungs if rung]

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int:
        if knobs.get(REPLICATE_ACROSS_NODES, False):
            setting = replace(setting, gpus=setting.gpus // setting.num_nodes)
        return memory_bounds.sharded_bytes(
            module,
            setting,
            reshard_after_forward=knobs.get(RESHARD_AFTER_FORWARD, True),
            cpu_offload=knobs.get(CPU_OFFLOAD, False) and setting.device_kind == "cuda",
        )

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        attention.set_back_end(module, knobs)
        if not knobs.get(REPLICATE_ACROSS_NODES, False):
            mesh = gang.mesh((gang.world_size,), names=("data",))
        elif are_alike(gang.node_gpus) or len(gang.node_gpus) == 1:
            shape = (len(gang.node_gpus), gang.node_gpus[0])
            mesh = gang.mesh(shape, names=("node", "data"))
        else:
            raise NotApplicable(
                f"{REPLICATE_ACROSS_NODES} needs as many devices of each node; the task's nodes "
                f"have {', '.join(map(str, gang.node_gpus))}"
            )
        layers = repeated_layers(module)
        scalars = WholeScalars(module, mesh, gang.device, units=layers)
        compiled.compile_layers(module, knobs)
        if knobs.get(ACTIVATION_CHECKPOINTING, False):
            recompute.checkpoint_layers(module, gang.device)
        options: dict[str, Any] = {}
        if knobs.get(CPU_OFFLOAD, False):
            # Copies to a GPU want pinned memory; pinning fails without a GPU.
            options["offload_policy"] = CPUOffloadPolicy(pin_memory=gang.device.type == "cuda")
        options_of_root: dict[str, Any] = {}
        if self.precision == BF16_PARAMS:
            options["mp_policy"] = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
            # The loss is computed in float32, so the outputs are converted.
            options_of_root["mp_policy"] = MixedPrecisionPolicy(
                torch.bfloat16, torch.float32, output_dtype=torch.float32
            )
        options[RESHARD_AFTER_FORWARD] = knobs.get(RESHARD_AFTER_FORWARD, True)
        sharding = Sharding(module, layers, mesh, scalars, options_of_root, **options)
        return ShardedModel(module, gang, sharding)
