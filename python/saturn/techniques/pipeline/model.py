"""A pipeline in training: one rank's stages, which may be split further over devices.

The task says how much each micro-batch counts in the loss, so micro-batches needn't be equal. If
several pipelines share a batch (`Sharding`), each cuts its own slice into micro-batches, as many as
it likes. The ranks of a stage meet only twice a step. They gather the stage before the first
micro-batch, and reduce its gradients in the last backward.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils import _pytree as pytree

from saturn.data import nested, seeds
from saturn.rank.exceptions import TaskError
from saturn.techniques.interface import NotApplicable, Objective, ParallelModel
from saturn.techniques.pipeline.balance import better_cut
from saturn.techniques.pipeline.layer_times import LayerTimes
from saturn.techniques.pipeline.line import Line
from saturn.techniques.pipeline.passage import Passage
from saturn.techniques.pipeline.rehearsal import Shapes
from saturn.techniques.pipeline.shared_parameters import SharedParameters
from saturn.techniques.pipeline.stage_forward import StageForward
from saturn.techniques.pipeline.traffic import Traffic
from saturn.techniques.sharding import Sharding
from saturn.techniques.tensor.group import TensorGroup

#: How many schedules are kept for later batches of the same shapes.
_MAX_SCHEDULES = 8
#: How many shapes of micro-batches are kept.
_MAX_SHAPES = 256


@dataclass(frozen=True)
class Microbatches:
    """How a slice passes through the stages."""

    schedule: str
    number: int


@dataclass(frozen=True)
class _Microbatch:
    """One micro-batch, equal on every stage."""

    batch: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    weight: float
    key: str  # equal for micro-batches of equal shapes


class PipelinedModel(ParallelModel):
    """One rank's stages. All ranks of a pipeline work on the same slice."""

    def __init__(
        self,
        stage: StageForward,
        line: Line,
        parameters: SharedParameters,
        microbatches: Microbatches,
        *,
        data: DeviceMesh | None = None,
        sharding: Sharding | None = None,
        tensor: TensorGroup | None = None,
        kinds: Sequence[str] | None = None,
    ) -> None:
        """`data` has the ranks that hold this stage for other slices; `sharding` uses it.

        `kinds` are the kinds of the whole model's layers. It is given only if the model may propose
        another cut, which takes one stage a rank.
        """
        self.module = stage.module
        self.data_rank = 0 if data is None else data.get_local_rank()
        self.data_size = 1 if data is None else data.size()
        self._stage, self._line, self._parameters = stage, line, parameters
        self._passage = Passage(stage, line)
        self._microbatches = microbatches
        self._sharding, self._tensor = sharding, tensor
        self._kinds = kinds
        self._times: LayerTimes | None = None
        self._shapes: dict[str, Shapes] = {}
        self._schedules: OrderedDict[tuple[str, ...], Traffic] = OrderedDict()

    def forward_backward(
        self, batch: Any, objective: Objective, share: float
    ) -> torch.Tensor | None:
        if self._sharding is not None:
            self._sharding.gather()
        pieces = self._cut(batch, objective, share)
        # If nothing in the batch counts, there is no loss; the step's other batches have one.
        loss = self._run(pieces, objective, share) if pieces else None
        if self.is_last_of_step:
            if self._sharding is not None:
                self._sharding.release()
                self._sharding.average_scalars()
                self._sharding.step_ended()
            self._parameters.sum_gradients()
            if self._times is not None:
                self._times.step_ended()
        if self._tensor is not None and pieces and self.is_last_of_step:
            self._tensor.check_gradients()
        return loss if self._tensor is None or self._tensor.is_first else None

    def forward(self, batch: Any, objective: Objective) -> Any:
        args, kwargs = objective.inputs(batch)
        outputs = self._passage.run(args, kwargs, _key(args, kwargs))
        return outputs if self._tensor is None or self._tensor.is_first else None

    @contextmanager
    def evaluating(self) -> Iterator[nn.Module]:
        if self._sharding is not None:
            self._sharding.gather()
        yield self.module  # nobody calls the module, because `runs_whole_model` is false
        self._passage.finish()
        if self._sharding is not None:
            self._sharding.release()

    def expect_skipped_parts(self) -> None:
        if self._sharding is not None:
            self._sharding.expect_skipped_parts()

    def gradient_norm(self) -> torch.Tensor:
        return self._parameters.gradient_norm()

    def begin_trial(self) -> None:
        if self._kinds is not None:
            (stage,) = self._line.stages
            self._times = LayerTimes(stage, self._stage.layers, self._line.device)

    def better_cut(self) -> list[int] | None:
        """The number of layers that each stage should have, judging by this trial.

        Every rank of the gang calls this and gets the same. None if nothing is clearly better.
        """
        if self._kinds is None or self._times is None:
            return None
        seen = self._line.collect_from_all(self._times.seen())
        return better_cut(self._stage.bounds, self._kinds, seen)

    def _run(
        self, pieces: Sequence[_Microbatch], objective: Objective, share: float
    ) -> torch.Tensor | None:
        """Run forward and backward; returns the mean loss on the last stage."""
        device = self._line.device
        # Equal on every rank of a slice, because the step's seed is.
        seed = int(torch.randint(2**62, ()))
        total = sum(piece.weight for piece in pieces)
        if len(self._shapes) > _MAX_SHAPES:
            self._shapes.clear()
        # Random streams are restored, so that a rehearsal doesn't change what the loss draws.
        with seeds.RandomState.now(device).again():
            for piece in pieces:
                if piece.key not in self._shapes:
                    found = self._stage.rehearse(piece.args, piece.kwargs, seed)
                    self._shapes[piece.key] = found
            if self._tensor is not None and self._tensor.forward_unchecked:
                self._check_forward(self._tensor, pieces[0], seed)
        shapes = [self._shapes[piece.key] for piece in pieces]
        losses = [torch.zeros(())] * len(pieces)
        # FSDP2 averages the gradients of slices, but they must be summed.
        factor = share * self.data_size / total

        def run(stage: int, number: int, received: Sequence[torch.Tensor]) -> Any:
            piece, own_seed = pieces[number], seeds.derive(seed, number)
            with nullcontext() if self._times is None else self._times.forward():
                ended = self._stage.run(
                    stage, piece.args, piece.kwargs, shapes[number], received, own_seed
                )
                if not self._stage.is_last(stage):
                    return ended
                loss = self._stage.loss(objective.loss(ended, piece.batch))
            losses[number] = loss.detach() * (piece.weight / total)
            return loss * (factor * piece.weight)

        self._traffic(pieces, shapes).step(run, shapes)
        # Stages have drawn different numbers; the rest of the step must draw alike.
        seeds.seed_batch(seeds.derive(seed, "after"), device)
        has_last = any(map(self._stage.is_last, self._line.stages))
        return torch.stack(losses).sum() if has_last else None

    def _check_forward(self, tensor: TensorGroup, piece: _Microbatch, seed: int) -> None:
        """Check that each stage computes the same as unsplit; the unsplit output goes on."""
        shapes, received = self._shapes[piece.key], list[torch.Tensor]()
        for number in range(self._line.num_stages):
            sent = None
            if number in self._line.stages:
                run = partial(
                    self._stage.run, number, piece.args, piece.kwargs, shapes, received, seed
                )
                sent = tensor.check_forward(run)
                sent = None if self._stage.is_last(number) else [each.cpu() for each in sent]
            passed = self._line.collect(sent)[self._line.place_of(number)]
            if number + 1 in self._line.stages:
                received = [each.to(self._line.device) for each in passed]

    def _cut(self, batch: Any, objective: Objective, share: float) -> list[_Microbatch]:
        """The micro-batches; at most one for each sample."""
        size = nested.num_samples(batch) or 0
        number = max(1, min(self._microbatches.number, size))
        in_host = objective.in_host_memory(batch)
        pieces = []
        for index in range(number):
            bounds = size * index // number, size * (index + 1) // number
            try:
                part = nested.take(batch, *bounds)
            except TaskError as error:
                raise NotApplicable(f"batches can't be cut into micro-batches: {error}") from None
            weight = float(share > 0)
            if number > 1 and share:
                weight = objective.weight(nested.take(in_host, *bounds))
            if weight:  # a part without weight may have no mean
                pieces.append(_microbatch(part, objective, weight))
        if not pieces and self._sharding is not None:
            # This slice has no weight, but ranks of other slices wait for its gradients.
            pieces.append(_microbatch(batch, objective, 1.0))
        return pieces

    def _traffic(self, pieces: Sequence[_Microbatch], shapes: Sequence[Shapes]) -> Traffic:
        # All ranks of a slice have the same key, so all make a new schedule together.
        key = tuple(piece.key for piece in pieces)
        if key not in self._schedules:
            if len(self._schedules) >= _MAX_SCHEDULES:
                self._schedules.popitem(last=False)
            self._schedules[key] = Traffic(
                self._line, self._microbatches.schedule, shapes, self._around_backward
            )
        self._schedules.move_to_end(key)
        return self._schedules[key]

    @contextmanager
    def _around_backward(self, is_last: bool) -> Iterator[None]:
        if self._sharding is not None:
            self._sharding.before_backward(is_last=is_last and self.is_last_of_step)
        with nullcontext() if self._times is None else self._times.backward():
            yield


def _microbatch(part: Any, objective: Objective, weight: float) -> _Microbatch:
    args, kwargs = objective.inputs(part)
    return _Microbatch(part, args, kwargs, weight, _key(args, kwargs))


def _key(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """A text that is equal for inputs of equal shapes."""
    leaves, structure = pytree.tree_flatten((args, kwargs))
    # Tensors and arrays count by shape; plain values may decide what the model does.
    parts = [
        f"{tuple(leaf.shape)} {leaf.dtype}" if hasattr(leaf, "shape") else repr(leaf)
        for leaf in leaves
    ]
    return f"{structure} {parts}"
