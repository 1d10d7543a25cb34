"""`pipeline` and its combinations: each device holds some of the layers, or a part of them.

Micro-batches flow through the stages on schedules of `torch.distributed.pipelining`: GPipe and 1F1B
with one stage a rank, and interleaved 1F1B with several. `stages` and `balance` cut a model.
`stage_forward` runs a stage's part, `traffic` carries tensors between stages, and `model` makes a
step.

In `pipeline+tensor`, a group of devices holds each stage, whose single layers are split over the
group as in `tensor`. In `pipeline+fsdp` there are several pipelines, each with a slice of the
batch, and FSDP2 splits each stage over the devices that run it. `pipeline+tensor+fsdp` is both. The
possible shapes of the mesh are in `shape`; at most three of those that a model allows are measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.modules.batchnorm import _BatchNorm

from saturn.rank.gang import Gang
from saturn.techniques.interface import Knobs, NotApplicable, ParallelModel, Setting, Technique
from saturn.techniques.model import attention
from saturn.techniques.model.layers import standing_alone
from saturn.techniques.model.local_copies import WholeScalars
from saturn.techniques.nodes import ACROSS_NODES
from saturn.techniques.pipeline.absent import AbsentTensor
from saturn.techniques.pipeline.line import Line
from saturn.techniques.pipeline.model import Microbatches, PipelinedModel
from saturn.techniques.pipeline.shape import DATA, TENSOR, Shape, shapes_of
from saturn.techniques.pipeline.shared_parameters import SharedParameters
from saturn.techniques.pipeline.stage_forward import NeededElsewhere, StageForward
from saturn.techniques.pipeline.stages import (
    Split,
    keep_only,
    kinds_of_layers,
    least_bytes,
    split,
    thriftiest_numbers,
)
from saturn.techniques.pipeline.traffic import INTERLEAVED, ONE_A_RANK, SCHEDULES
from saturn.techniques.sharding import Sharding
from saturn.techniques.tensor.group import TensorGroup, retry_knobs
from saturn.techniques.tensor.plan import ONLY, ModuleSplit, TensorPlan

#: Knobs for the mesh's shape; the devices that are left over go to FSDP2.
STAGES = "stages"
#: The knob for the number of layers of each stage.
CUT = "cut"
#: The knob for the number of stages on each device, on a schedule that interleaves them.
STAGES_A_DEVICE = "stages_a_device"
#: The default of that knob: more stages would send more, and have fewer layers each.
_INTERLEAVED_STAGES = 2
#: The most shapes that are measured, if more are possible.
_MAX_SHAPES = 3


class Pipeline(Technique):
    """Stages on a line of devices.

    Knobs: `schedule`, `microbatches`, `cut`, `everywhere`; `stages_a_device` if the schedule
    interleaves stages.

    `cut` says how many layers each stage has. Without it, stages are balanced by their parameters.
    A trial that measures unequal stages proposes another cut, and if memory is short, a cut by
    bytes is tried. `everywhere` names parameters outside the layers that every stage holds. A trial
    finds them, if the model's code needs parameters on stages that don't hold them.
    """

    has_data: ClassVar = False  # whether there are several pipelines, with FSDP2 over them
    has_tensor: ClassVar = False  # whether a tensor group holds each stage
    too_few: ClassVar = "one device makes no pipeline"
    runs_whole_model = False

    #: The tensor plan by which a stage was last split.
    _split_by: TensorPlan | None = None

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        try:
            self._shapes(module, setting)
        except NotApplicable as reason:
            return str(reason)
        return None

    def cuts_batches(self, setting: Setting, knobs: Knobs) -> bool:
        return self.has_data or int(knobs.get("microbatches", 2)) > 1

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        sets: list[Knobs] = [
            {"schedule": schedule, "microbatches": times * setting.gpus}
            for times in (2, 4)
            for schedule in ONE_A_RANK
        ]
        try:
            split(module, _INTERLEAVED_STAGES * setting.gpus)
        except NotApplicable:
            pass  # too few layers for interleaving
        else:
            sets.append({"schedule": INTERLEAVED, "microbatches": 2 * setting.gpus})
        return attention.with_back_ends(sets, module, setting)

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        thriftier = []
        for knobs in self.knob_sets(module, setting):
            if knobs["schedule"] != "1f1b":
                continue
            cut = _split(module, self._shape(setting.gpus, knobs), knobs)
            by_bytes = {**knobs, CUT: thriftiest_numbers(module, cut)}
            least, before = (
                self.least_memory_bytes(module, setting, each) or 0 for each in (by_bytes, knobs)
            )
            if least < before:
                thriftier.append(by_bytes)
        return [thriftier] if thriftier else []

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int | None:
        shape = self._shape(setting.gpus, knobs)
        try:
            cut = _split(module, shape, knobs)
        except NotApplicable:
            return None  # `parallelise` will say why it can't be cut
        parts = {}
        if self.has_tensor:
            parts = TensorPlan(module, setting.hints, knobs.get(ONLY)).num_parts(
                module, shape.tensor
            )
        of_places = least_bytes(
            module,
            cut,
            num_places=shape.stages,
            optimizer_state_ratio=setting.optimizer_state_ratio,
            num_data=shape.data,
            num_parts=parts,
        )
        return max(of_places)

    def retry_knobs(self, knobs: Knobs, error: str) -> Knobs | None:
        held = knobs.get("everywhere", [])
        needed = [name for name in NeededElsewhere.names_in(error) if name not in held]
        if needed:
            return {**knobs, "everywhere": [*held, *needed]}
        return retry_knobs(self._split_by, knobs, error)

    def changes_after(self, knobs: Knobs, model: ParallelModel) -> Knobs | None:
        numbers = model.better_cut() if isinstance(model, PipelinedModel) else None
        return None if numbers is None else {CUT: numbers}

    def changed(self, knobs: Knobs, changes: Knobs) -> Knobs:
        return knobs if knobs["schedule"] == INTERLEAVED else super().changed(knobs, changes)

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        schedule = knobs.get("schedule", "1f1b")
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule is `{schedule}`; it must be one of {list(SCHEDULES)}")
        if schedule == INTERLEAVED and (self.has_data or self.has_tensor):
            raise NotApplicable(f"the schedule `{INTERLEAVED}` is for `pipeline` alone")
        shape = self._shape(gang.world_size, knobs)
        if any(gpus % shape.tensor for gpus in gang.node_gpus):
            raise NotApplicable(ACROSS_NODES)
        self._split_by = plan = self._plan(module, shape, knobs)
        attention.set_back_end(module, knobs)
        dimensions = shape.dimensions
        mesh = gang.mesh(tuple(dimensions.values()), names=tuple(dimensions))
        line = Line(mesh, gang.device, _stages_a_device(knobs))
        cut = _split(module, shape, knobs)
        may_change = CUT not in knobs and schedule != INTERLEAVED
        kinds = kinds_of_layers(cut) if may_change else None
        absent = keep_only(module, cut, line.stages, gang.device)
        stage = StageForward(module, cut, line, absent)
        scalars = None
        if self.has_data:
            of_stage = mesh[tuple(dimensions)[1:]]
            scalars = WholeScalars(stage.whole, of_stage, gang.device, units=stage.units)
        tensor = None
        if plan is not None:
            splits = _held(plan.splits(shape.tensor))
            tensor = TensorGroup(
                *(stage.whole, splits, plan.own_sizes, mesh[TENSOR], gang.device),
                units=stage.units,
                are_gathered=self.has_data,
            )
            stage.own_hooks = tensor.hooks
        else:
            module.to(gang.device)
        data: DeviceMesh | None = None
        sharding = None
        if scalars is not None:
            data = mesh[DATA]
            units = standing_alone(module, [unit.part for unit in stage.units])
            sharding = Sharding(
                stage.whole,
                [unit for unit in stage.units if any(unit.part is each for each in units)],
                data,
                scalars,
                # Micro-batches follow one another too fast to gather the stage for each.
                reshard_after_forward=False,
            )
        return PipelinedModel(
            stage,
            line,
            SharedParameters(module, cut.holders, line),
            Microbatches(schedule, int(knobs.get("microbatches", 2 * shape.stages))),
            data=data,
            sharding=sharding,
            tensor=tensor,
            kinds=kinds,
        )

    def _plan(self, module: nn.Module, shape: Shape, knobs: Knobs) -> TensorPlan | None:
        """The model's tensor plan; raises `NotApplicable` if the model can't be spread so."""
        _refuse_batch_norm(module)
        split(module, shape.stages)
        if not self.has_tensor:
            return None
        plan = TensorPlan(module, self.hints, knobs.get(ONLY))
        if (reason := plan.indivisible(shape.tensor)) is not None:
            raise NotApplicable(reason)
        return plan

    def _shapes(self, module: nn.Module, setting: Setting) -> list[Shape]:
        """The shapes that the model allows; raises `NotApplicable` if there is none."""
        possible = shapes_of(setting.gpus, data=self.has_data, tensor=self.has_tensor)
        if not possible:
            raise NotApplicable(self.too_few.format(gpus=setting.gpus))
        _refuse_batch_norm(module)
        plan = TensorPlan(module, setting.hints) if self.has_tensor else None
        allowed, reasons = [], []
        for shape in possible:
            if not setting.holds_groups_of(shape.tensor):
                reasons.append(ACROSS_NODES)
                continue
            try:
                split(module, shape.stages)
            except NotApplicable as error:
                reasons.append(str(error))
                continue
            reason = plan.indivisible(shape.tensor) if plan is not None else None
            if reason is None:
                allowed.append(shape)
            else:
                reasons.append(reason)
        if not allowed:
            raise NotApplicable(reasons[0])
        return allowed

    def _shape(self, gpus: int, knobs: Knobs) -> Shape:
        """The shape that the knobs ask for; raises `NotApplicable` if it is impossible."""
        tensor = int(knobs.get(TENSOR, 2)) if self.has_tensor else 1
        stages = int(knobs.get(STAGES, 2)) if self.has_data else gpus // tensor
        if (shape := Shape(stages, gpus // (stages * tensor), tensor)) not in shapes_of(
            gpus, data=self.has_data, tensor=self.has_tensor
        ):
            raise NotApplicable(f"{gpus} devices can't make {shape}")
        return shape


class _Combined(Pipeline):
    """A mesh of several dimensions, whose shapes are picked by rule."""

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        sets = [self._knobs(shape) for shape in self._shapes(module, setting)]
        limit = setting.device_memory_bytes
        if limit is not None:
            fitting = [
                knobs
                for knobs in sets
                if (self.least_memory_bytes(module, setting, knobs) or 0) <= limit
            ]
            sets = fitting or sets[-1:]  # if none fits, the thriftiest shows what it lacks
        return attention.with_back_ends(sets[:_MAX_SHAPES], module, setting)

    def _knobs(self, shape: Shape) -> Knobs:
        # 1F1B keeps fewer activations than GPipe, and is as fast. There are two micro-batches a
        # stage, since each pipeline has only its slice of a batch.
        knobs: Knobs = {"schedule": "1f1b", "microbatches": 2 * shape.stages}
        if self.has_data:
            knobs[STAGES] = shape.stages
        if self.has_tensor:
            knobs[TENSOR] = shape.tensor
        return knobs


class PipelineFsdp(_Combined):
    """Several pipelines, with FSDP2 over the devices that hold the same stage.

    Knobs: `stages`, and those of `pipeline`.
    """

    has_data: ClassVar = True
    too_few: ClassVar = (
        "it takes a device count that can be cut into several pipelines of two stages or more, "
        "such as 4, 6 or 8; {gpus} can't"
    )


class PipelineTensor(_Combined):
    """A pipeline of tensor groups. Knobs: `tensor`, and those of `pipeline`."""

    has_tensor: ClassVar = True
    too_few: ClassVar = (
        "it takes a device count that can be cut into several stages of two devices or more, such "
        "as 4, 6 or 8; {gpus} can't"
    )


class PipelineTensorFsdp(_Combined):
    """Several pipelines of tensor groups, with FSDP2 over them.

    Knobs: `stages`, `tensor`, and those of `pipeline`.
    """

    has_data: ClassVar = True
    has_tensor: ClassVar = True
    too_few: ClassVar = (
        "it takes a device count that can be cut into several pipelines, each of several stages "
        "of two devices or more, such as 8, 12 or 16; {gpus} can't"
    )


def _refuse_batch_norm(module: nn.Module) -> None:
    for name, part in module.named_modules():
        if isinstance(part, _BatchNorm) and part.training:
            raise NotApplicable(
                f"`{name}` normalises over the batch: over micro-batches that is another model"
            )


def _stages_a_device(knobs: Knobs) -> int:
    if knobs.get("schedule") != INTERLEAVED:
        return 1
    return int(knobs.get(STAGES_A_DEVICE, _INTERLEAVED_STAGES))


def _split(module: nn.Module, shape: Shape, knobs: Knobs) -> Split:
    return split(
        module,
        shape.stages * _stages_a_device(knobs),
        everywhere=knobs.get("everywhere", ()),
        numbers=knobs.get(CUT),
    )


def _held(splits: Sequence[ModuleSplit]) -> list[ModuleSplit]:
    """The splits of modules that this stage holds, out of the whole model's splits."""
    held = []
    for each in splits:
        if not any(isinstance(value, AbsentTensor) for value in vars(each.module).values()):
            held.append(each)
        elif any(value is not None for value in each.module._parameters.values()):
            raise NotApplicable(
                f"a stage without anything else to train would hold a part of `{each.name}`, which "
                "the plan splits"
            )
    return held
