"""What travels between the stages of a pipeline, on schedules of `torch.distributed.pipelining`.

Tensors travel flat. For all micro-batches of a batch they are as long as the longest's. torch knows
only this length, so micro-batches needn't be equal, and another batch may have other shapes. The
schedule hands out numbers of micro-batches; each stage has the micro-batches themselves.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import (
    PipelineStage,
    Schedule1F1B,
    ScheduleGPipe,
    ScheduleInterleaved1F1B,
    ScheduleLoopedBFS,
)

from saturn.techniques.interface import NotApplicable
from saturn.techniques.pipeline.line import Line
from saturn.techniques.pipeline.rehearsal import Lacking, Shapes

#: The knob's names of schedules: those with one stage a rank, and the one with several.
ONE_A_RANK = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
INTERLEAVED = "interleaved"
SCHEDULES = (*ONE_A_RANK, INTERLEAVED)
#: Runs a stage on a micro-batch, given the numbers of both and the received tensors. Returns the
#: scaled loss on the last stage, and the tensors for the next stage on others.
RunStage = Callable[[int, int, Sequence[torch.Tensor]], Any]


class Traffic:
    """A schedule for micro-batches of given shapes, with the tensors between its stages."""

    def __init__(
        self,
        line: Line,
        schedule: str,
        shapes: Sequence[Shapes],
        around_backward: Callable[[bool], AbstractContextManager[None]],
    ) -> None:
        """`around_backward` is the context of each backward.

        With one stage a rank, its argument says whether the backward is the last.
        """
        self._line = line
        self._num_microbatches = len(shapes)
        self._run: RunStage | None = None  # set during a step, like the next two
        self._shapes: Sequence[Shapes] = ()
        self._failure: Exception | None = None
        #: Lengths and types of what leaves each of this rank's stages, except the model's last.
        self._leaving = {
            stage: _lengths([each.lacking[stage + 1] for each in shapes])
            for stage in line.stages
            if stage + 1 < line.num_stages
        }
        stages = [self._stage(stage, shapes, around_backward) for stage in line.stages]
        self._schedule: Any = _schedule(schedule, stages, len(shapes))

    def _stage(
        self,
        number: int,
        shapes: Sequence[Shapes],
        around_backward: Callable[[bool], AbstractContextManager[None]],
    ) -> _Stage:
        line = self._line
        arriving = _lengths([each.lacking[number] for each in shapes])
        # The schedule needs some inputs: it gets the micro-batches' numbers.
        numbers = (torch.empty(1, dtype=torch.int64, device="meta"),)
        stage = _Stage(
            _StageModule(self, number),
            number,
            line.num_stages,
            line.device,
            group=line.group,
            input_args=numbers if number == 0 else tuple(_metas(arriving)),
            output_args=(
                tuple(_metas(self._leaving[number]))
                if number in self._leaving
                else torch.empty(1, device="meta", requires_grad=True)
            ),
        )
        # With one stage a rank, backwards run in order, so the last micro-batch comes last.
        stage.around_backward = lambda each: around_backward(each == len(shapes) - 1)
        return stage

    def step(self, run: RunStage, shapes: Sequence[Shapes]) -> None:
        """Run forward and backward of all micro-batches, by `run(stage, number, received)`."""
        self._run, self._shapes, self._failure = run, shapes, None
        numbers = torch.arange(self._num_microbatches)
        first = (numbers,) if 0 in self._line.stages else ()
        target = numbers if self._line.num_stages - 1 in self._line.stages else None
        try:
            self._schedule.step(*first, number=numbers, target=target)
        except RuntimeError:
            # The schedule says only that a stage has failed; the stage's own error says why.
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            self._run, self._shapes, self._failure = None, (), None

    def forward(self, stage: int, number: int, arrived: Sequence[torch.Tensor]) -> Any:
        """Run one micro-batch through a stage: flat tensors in, flat tensors out."""
        lacking = self._shapes[number].lacking[stage]
        received = [
            # A copy, because layers may write to it, and the received tensor is a leaf.
            flat[: prod(lacks.shape)].view(lacks.shape).clone()
            for flat, lacks in zip(arrived, lacking, strict=True)
        ]
        assert self._run is not None  # the schedule only calls this in a step
        try:
            ended = self._run(stage, number, received)
        except Exception as error:
            self._failure = error
            raise
        if stage not in self._leaving:
            return ended.reshape(1)
        return tuple(
            _flat(tensor, length)
            for tensor, (length, _) in zip(ended, self._leaving[stage], strict=True)
        )


def _schedule(name: str, stages: list[_Stage], num_microbatches: int) -> Any:
    """The schedule of this name, or the nearest that this number of micro-batches allows."""
    options: dict[str, Any] = {"loss_fn": lambda output, number: output, "scale_grads": False}
    if name != INTERLEAVED:
        (stage,) = stages
        if num_microbatches < stage.num_stages:
            name = "gpipe"  # 1F1B begins with one micro-batch for each stage
        return ONE_A_RANK[name](stage, num_microbatches, **options)
    # It runs in rounds of equally many micro-batches, if possible at least one for each rank.
    rounds = max(1, num_microbatches // stages[0].group_size)
    schedule = ScheduleLoopedBFS if num_microbatches % rounds else ScheduleInterleaved1F1B
    return schedule([*stages], num_microbatches, **options)


class _Stage(PipelineStage):
    """A stage with a context around the backward of each micro-batch."""

    around_backward: Callable[[int], AbstractContextManager[None]]

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        with self.around_backward(bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)


class _StageModule(nn.Module):
    """The module that the schedule calls for a stage. It has no parameters: the model has them."""

    def __init__(self, traffic: Traffic, stage: int) -> None:
        super().__init__()
        self._traffic, self._stage = traffic, stage

    def forward(self, *arrived: torch.Tensor, number: torch.Tensor) -> Any:
        # The first stage gets its number as `arrived` too.
        return self._traffic.forward(self._stage, int(number), arrived if self._stage else ())


def _lengths(lacking: Sequence[Sequence[Lacking]]) -> list[tuple[int, torch.dtype]]:
    """Length and type of each tensor that travels, as long as the longest micro-batch needs."""
    if len({tuple(lacks.dtype for lacks in each) for each in lacking}) > 1:
        raise NotApplicable("micro-batches of one batch pass different tensors between layers")
    columns = list(zip(*lacking, strict=True))
    return [(max(prod(lacks.shape) for lacks in column), column[0].dtype) for column in columns]


def _metas(lengths: Sequence[tuple[int, torch.dtype]]) -> Iterator[torch.Tensor]:
    for length, dtype in lengths:
        yield torch.empty(length, dtype=dtype, device="meta", requires_grad=True)


def _flat(tensor: torch.Tensor, length: int) -> torch.Tensor:
    flat = tensor.reshape(-1).contiguous()
    if flat.numel() < length:
        flat = nn.functional.pad(flat, (0, length - flat.numel()))
    # Frozen layers give no gradient, but the schedule always sends one back.
    return flat if flat.requires_grad else flat.detach().requires_grad_()
