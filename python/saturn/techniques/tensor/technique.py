"""`tensor` and `tensor+fsdp`: single layers split over the devices of a group.

Each device of a tensor group computes its part of every module that the model's plan splits (see
`plan`). All devices of a group work on the same slice of the batch. `tensor` is one group of all
devices. `tensor+fsdp` has several groups, each with its own slice. FSDP2 splits each device's part
of the model further, over the groups.

Both have the knobs `activation_checkpointing` (default false, see `recompute`) and `attention`
(see `attention`). `tensor+fsdp` also has `tensor`, the number of devices in a group.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh

from saturn.techniques.data_parallel import ShardedModel
from saturn.techniques.interface import (
    Knobs,
    NotApplicable,
    Objective,
    ParallelModel,
    Setting,
    Technique,
)
from saturn.techniques.model import attention, recompute
from saturn.techniques.model.layers import repeated_layers
from saturn.techniques.model.local_copies import WholeScalars
from saturn.techniques.model.recompute import ACTIVATION_CHECKPOINTING
from saturn.techniques.nodes import ACROSS_NODES
from saturn.techniques.sharding import Sharding
from saturn.techniques.tensor.group import TensorGroup, retry_knobs
from saturn.techniques.tensor.plan import ONLY, TensorPlan

if TYPE_CHECKING:
    from saturn.rank.gang import Gang

TENSOR = "tensor"


class _BySplitting(Technique):
    """The common part of both techniques: splitting a model by its plan."""

    #: The plan by which the model was last split.
    _plan: TensorPlan | None = None

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        if recompute.reason_against(module) is not None:
            return []
        sets = self.knob_sets(module, setting)
        return [[{**knobs, ACTIVATION_CHECKPOINTING: True} for knobs in sets]]

    def retry_knobs(self, knobs: Knobs, error: str) -> Knobs | None:
        return retry_knobs(self._plan, knobs, error)

    def _split(
        self, module: nn.Module, knobs: Knobs, mesh: DeviceMesh, gang: Gang, *, with_fsdp: bool
    ) -> TensorGroup:
        if any(gpus % mesh.size() for gpus in gang.node_gpus):
            raise NotApplicable(ACROSS_NODES)
        attention.set_back_end(module, knobs)
        self._plan = plan = TensorPlan(module, self.hints, knobs.get(ONLY))
        if (reason := plan.indivisible(mesh.size())) is not None:
            raise NotApplicable(reason)
        group = TensorGroup(
            *(module, plan.splits(mesh.size()), plan.own_sizes, mesh, gang.device),
            units=repeated_layers(module),
            are_gathered=with_fsdp,
        )
        if knobs.get(ACTIVATION_CHECKPOINTING, False):
            recompute.checkpoint_layers(module, gang.device)
        return group


class TensorParallel(_BySplitting):
    """All devices are one tensor group."""

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        if setting.gpus == 1:
            return "one device leaves nothing to split: the same as ddp"
        if setting.num_nodes > 1:
            return ACROSS_NODES
        try:
            plan = TensorPlan(module, setting.hints)
        except NotApplicable as reason:
            return str(reason)
        return plan.indivisible(setting.gpus)

    def cuts_batches(self, setting: Setting, knobs: Knobs) -> bool:
        return False

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        return attention.with_back_ends([{}], module, setting)

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int:
        return _least_bytes(module, setting, knobs, size=setting.gpus)

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        mesh = gang.mesh((gang.world_size,), names=("tensor",))
        group = self._split(module, knobs, mesh, gang, with_fsdp=False)
        return TensorParallelModel(module, gang, group)


class TensorFsdp(_BySplitting):
    """Tensor groups, and FSDP2 over them."""

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        sizes = _group_sizes(setting.gpus)
        if not sizes:
            return (
                "it takes a device count that can be cut into several groups of two or more, such "
                f"as 4, 6 or 8; {setting.gpus} can't"
            )
        try:
            plan = TensorPlan(module, setting.hints)
        except NotApplicable as reason:
            return str(reason)
        sizes = [size for size in sizes if setting.holds_groups_of(size)]
        if not sizes:
            return ACROSS_NODES
        reasons = [plan.indivisible(size) for size in sizes]
        return reasons[0] if all(reasons) else None

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        plan = TensorPlan(module, setting.hints)
        sizes = [size for size in _group_sizes(setting.gpus) if setting.holds_groups_of(size)]
        sets = [{TENSOR: size} for size in sizes if plan.indivisible(size) is None]
        return attention.with_back_ends(sets, module, setting)

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int:
        size = int(knobs[TENSOR])
        return _least_bytes(module, setting, knobs, size=size) // (setting.gpus // size)

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        size = knobs[TENSOR]
        # Ranks of a tensor group are neighbours, because they communicate most.
        mesh = gang.mesh((gang.world_size // size, size), names=("data", "tensor"))
        layers = repeated_layers(module)
        scalars = WholeScalars(module, mesh, gang.device, units=layers)
        group = self._split(module, knobs, mesh["tensor"], gang, with_fsdp=True)
        sharding = Sharding(module, layers, mesh["data"], scalars)
        return TensorParallelModel(module, gang, group, data=mesh["data"], sharding=sharding)


class TensorParallelModel(ShardedModel):
    """A module split over tensor groups; the first rank of each reports its loss."""

    def __init__(
        self,
        module: nn.Module,
        gang: Gang,
        group: TensorGroup,
        *,
        data: DeviceMesh | None = None,
        sharding: Sharding | None = None,
    ) -> None:
        super().__init__(module, gang, sharding)
        self.data_rank = 0 if data is None else data.get_local_rank()
        self.data_size = 1 if data is None else data.size()
        self._group = group

    def forward_backward(self, batch: Any, objective: Objective, share: float) -> Tensor | None:
        if self._group.forward_unchecked:
            self._group.check_forward(lambda: objective.outputs_of(self.module, batch))
        loss = super().forward_backward(batch, objective, share)
        self._group.check_gradients()
        return loss if self._group.is_first else None

    def forward(self, batch: Any, objective: Objective) -> Any:
        outputs = super().forward(batch, objective)
        return outputs if self._group.is_first else None


def _group_sizes(gpus: int) -> list[int]:
    return [size for size in range(2, gpus) if gpus % size == 0]


def _least_bytes(module: nn.Module, setting: Setting, knobs: Knobs, *, size: int) -> int:
    """Bytes of parameters, gradients and optimizer state on one of `size` devices."""
    parts = TensorPlan(module, setting.hints, knobs.get(ONLY)).num_parts(module, size)
    held = 0.0
    for parameter in module.parameters():
        copies = 2.0 + setting.optimizer_state_ratio if parameter.requires_grad else 1.0
        held += parameter.nbytes * copies / parts[id(parameter)]
    return int(held)
