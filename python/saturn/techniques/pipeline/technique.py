"""`pipeline`: each device holds some of the layers, and micro-batches flow through them.

Schedules are those of `torch.distributed.pipelining`, GPipe and 1F1B, with one stage a rank. How a
model is cut is in `stages`, how a stage runs its part in `stage_forward`, and what travels between
stages in `traffic`.

Micro-batches weigh in the loss by what the task says they count, so they needn't be equal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils import _pytree as pytree

from saturn.data import nested, seeds
from saturn.rank.exceptions import TaskError
from saturn.rank.gang import Gang
from saturn.techniques.interface import (
    Knobs,
    NotApplicable,
    Objective,
    ParallelModel,
    Setting,
    Technique,
)
from saturn.techniques.model import attention
from saturn.techniques.pipeline.rehearsal import Shapes
from saturn.techniques.pipeline.shared_parameters import SharedParameters
from saturn.techniques.pipeline.stage_forward import NeededElsewhere, StageForward
from saturn.techniques.pipeline.stages import Split, keep_only, split, stage_bytes
from saturn.techniques.pipeline.traffic import SCHEDULES, Traffic

#: Schedules that are kept, for the next batch of the same shapes.
_MAX_SCHEDULES = 8
#: Shapes of micro-batches that are remembered.
_MAX_SHAPES = 256


class Pipeline(Technique):
    """GPipe and 1F1B. Knobs: `schedule`, `microbatches`, and `everywhere`.

    `everywhere` names parameters outside the layers that every stage holds; a trial finds out
    where a model's code needs some on other stages than where the order of its modules says.
    """

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        if setting.gpus == 1:
            return "one device makes no pipeline"
        for name, part in module.named_modules():
            if isinstance(part, _BatchNorm) and part.training:
                return (
                    f"`{name}` normalises over the batch: over micro-batches that is another model"
                )
        try:
            split(module, setting.gpus)
        except NotApplicable as reason:
            return str(reason)
        return None

    def cuts_batches(self, setting: Setting, knobs: Knobs) -> bool:
        return int(knobs.get("microbatches", 2)) > 1

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        sets: list[Knobs] = [
            {"schedule": schedule, "microbatches": times * setting.gpus}
            for times in (2, 4)
            for schedule in SCHEDULES
        ]
        return attention.with_back_ends(sets, module, setting)

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int | None:
        cut = _split(module, setting.gpus, knobs)
        return max(stage_bytes(module, cut, optimizer_state_ratio=setting.optimizer_state_ratio))

    def retry_knobs(self, knobs: Knobs, error: str) -> Knobs | None:
        held = knobs.get("everywhere", [])
        needed = [name for name in NeededElsewhere.names_in(error) if name not in held]
        return {**knobs, "everywhere": [*held, *needed]} if needed else None

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        schedule = knobs.get("schedule", "1f1b")
        if schedule not in SCHEDULES:
            raise ValueError(f"schedule is `{schedule}`; it must be one of {list(SCHEDULES)}")
        setting = Setting(gpus=gang.world_size, device_kind=gang.device.type, hints={})
        if (reason := self.not_applicable(module, setting)) is not None:
            raise NotApplicable(reason)
        attention.set_back_end(module, knobs)
        gang.open()
        cut = _split(module, gang.world_size, knobs)
        keep_only(module, cut, gang.rank, gang.device)
        num_microbatches = int(knobs.get("microbatches", 2 * gang.world_size))
        return PipelinedModel(module, cut, gang, schedule, num_microbatches)


def _split(module: nn.Module, num_stages: int, knobs: Knobs) -> Split:
    return split(module, num_stages, everywhere=knobs.get("everywhere", ()))


@dataclass(frozen=True)
class _Microbatch:
    """One micro-batch, as every stage sees it."""

    batch: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    weight: float
    key: str  # equal for micro-batches of equal shapes


class PipelinedModel(ParallelModel):
    """One stage. All ranks work on the same, whole batch."""

    data_rank = 0
    data_size = 1

    def __init__(
        self, module: nn.Module, cut: Split, gang: Gang, schedule: str, num_microbatches: int
    ) -> None:
        self.module = module
        self._gang = gang
        self._schedule = schedule
        self._num_microbatches = num_microbatches
        self._stage = StageForward(module, cut, gang)
        self._parameters = SharedParameters(module, cut.holders, gang)
        self._shapes: dict[str, Shapes] = {}
        self._schedules: OrderedDict[tuple[str, ...], Traffic] = OrderedDict()

    def forward_backward(
        self, batch: Any, objective: Objective, share: float
    ) -> torch.Tensor | None:
        pieces = self._cut(batch, objective, share)
        # Where nothing counts there is nothing to report; the step's other batches count.
        loss = self._run(pieces, objective, share) if pieces else None
        if self.is_last_of_step:
            self._parameters.sum_gradients()
        return loss

    def gradient_norm(self) -> torch.Tensor:
        return self._parameters.gradient_norm()

    def _run(
        self, pieces: Sequence[_Microbatch], objective: Objective, share: float
    ) -> torch.Tensor | None:
        """Forward and backward; the mean loss on the last stage."""
        # The same on every rank, because the step's seed is.
        seed = int(torch.randint(2**62, ()))
        total = sum(piece.weight for piece in pieces)
        if len(self._shapes) > _MAX_SHAPES:
            self._shapes.clear()
        for piece in pieces:
            if piece.key not in self._shapes:
                # Put back after it: which steps rehearse is no part of what the loss draws.
                with seeds.RandomState.now(self._gang.device).again():
                    found = self._stage.rehearse(piece.args, piece.kwargs, seed)
                self._shapes[piece.key] = found
        shapes = [self._shapes[piece.key] for piece in pieces]
        losses = [torch.zeros(())] * len(pieces)

        def run(number: int, received: Sequence[torch.Tensor]) -> Any:
            piece, own_seed = pieces[number], seeds.derive(seed, number)
            ended = self._stage.run(piece.args, piece.kwargs, shapes[number], received, own_seed)
            if not self._stage.is_last:
                return ended
            loss = self._stage.loss(objective.loss(ended, piece.batch))
            losses[number] = loss.detach() * (piece.weight / total)
            return loss * (share * piece.weight / total)

        self._traffic(pieces, shapes).step(run, shapes)
        # Stages have drawn different numbers; what comes next in this step draws alike.
        seeds.seed_batch(seeds.derive(seed, "after"), self._gang.device)
        return torch.stack(losses).sum() if self._stage.is_last else None

    def _cut(self, batch: Any, objective: Objective, share: float) -> list[_Microbatch]:
        """The micro-batches; as many as there are samples where that is fewer."""
        size = nested.num_samples(batch) or 0
        number = max(1, min(self._num_microbatches, size))
        pieces = []
        for index in range(number):
            try:
                part = nested.take(batch, size * index // number, size * (index + 1) // number)
            except TaskError as error:
                raise NotApplicable(f"batches can't be cut into micro-batches: {error}") from None
            weight = objective.weight(part) if number > 1 else float(share > 0)
            if weight:  # what counts nothing may have no mean
                args, kwargs = objective.inputs(part)
                pieces.append(_Microbatch(part, args, kwargs, weight, _key(args, kwargs)))
        return pieces

    def _traffic(self, pieces: Sequence[_Microbatch], shapes: Sequence[Shapes]) -> Traffic:
        # The key is the same on all ranks, so all make a new schedule together.
        key = tuple(piece.key for piece in pieces)
        if key not in self._schedules:
            if len(self._schedules) >= _MAX_SCHEDULES:
                self._schedules.popitem(last=False)
            self._schedules[key] = Traffic(self._gang, self._schedule, shapes)
        self._schedules.move_to_end(key)
        return self._schedules[key]


def _key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Text that is equal for inputs of equal shapes."""
    leaves, structure = pytree.tree_flatten((args, kwargs))
    # Of tensors and arrays the shapes; plain values may decide what the model does.
    parts = [
        f"{tuple(leaf.shape)} {leaf.dtype}" if hasattr(leaf, "shape") else repr(leaf)
        for leaf in leaves
    ]
    return f"{structure} {parts}"
