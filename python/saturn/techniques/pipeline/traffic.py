"""What travels between the stages of a pipeline, on schedules of `torch.distributed.pipelining`.

Tensors travel flat, and of one length for all micro-batches of a batch, the longest's: that is all
that torch is told of shapes, so micro-batches needn't be equal, and another batch's may be other
ones. The schedule hands out numbers of micro-batches; what they are, each stage knows itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

from saturn.techniques.interface import NotApplicable
from saturn.techniques.pipeline.line import Line
from saturn.techniques.pipeline.rehearsal import Lacking, Shapes

SCHEDULES = {"1f1b": Schedule1F1B, "gpipe": ScheduleGPipe}
#: Runs a stage on a micro-batch, by its number, with what was received for it: gives the scaled
#: loss on the last stage, elsewhere the tensors for the next.
RunStage = Callable[[int, Sequence[torch.Tensor]], Any]


class Traffic:
    """A schedule for micro-batches of given shapes, and what travels between its stages."""

    def __init__(
        self,
        line: Line,
        schedule: str,
        shapes: Sequence[Shapes],
        around_backward: Callable[[bool], AbstractContextManager[None]],
    ) -> None:
        """`around_backward` is entered for each backward, given whether it is the last."""
        self._line = line
        self._num_microbatches = len(shapes)
        self._is_last = line.stage == line.num_stages - 1
        arriving = _lengths([each.lacking[line.stage] for each in shapes])
        self._leaving = (
            [] if self._is_last else _lengths([each.lacking[line.stage + 1] for each in shapes])
        )
        self._run: RunStage | None = None  # during a step, as the next two
        self._shapes: Sequence[Shapes] = ()
        self._failure: Exception | None = None
        # The schedule hands out numbers of micro-batches; each stage has the micro-batches.
        numbers = (torch.empty(1, dtype=torch.int64, device="meta"),)
        stage = _Stage(
            _StageModule(self),
            line.stage,
            line.num_stages,
            line.device,
            group=line.group,
            input_args=numbers if line.stage == 0 else tuple(_metas(arriving)),
            output_args=(
                torch.empty(1, device="meta", requires_grad=True)
                if self._is_last
                else tuple(_metas(self._leaving))
            ),
        )
        # Both schedules have the backwards in order.
        stage.around_backward = lambda number: around_backward(number == len(shapes) - 1)
        if len(shapes) < line.num_stages:
            schedule = "gpipe"  # 1F1B begins with a micro-batch for each stage
        self._schedule = SCHEDULES[schedule](
            stage, len(shapes), loss_fn=lambda output, number: output, scale_grads=False
        )

    def step(self, run: RunStage, shapes: Sequence[Shapes]) -> None:
        """Forward and backward of all micro-batches, by `run(number, received)`."""
        self._run, self._shapes, self._failure = run, shapes, None
        numbers = torch.arange(self._num_microbatches)
        target = numbers if self._is_last else None
        try:
            if self._line.stage == 0:
                self._schedule.step(numbers, target=target)
            else:
                self._schedule.step(number=numbers, target=target)
        except RuntimeError:
            # The schedule says only that a stage has failed; its own error says why.
            if self._failure is not None:
                raise self._failure from None
            raise
        finally:
            self._run, self._shapes, self._failure = None, (), None

    def forward(self, number: int, arrived: Sequence[torch.Tensor]) -> Any:
        """One micro-batch through this stage: flat tensors in, flat tensors out."""
        lacking = self._shapes[number].lacking[self._line.stage]
        received = [
            # A copy, because layers may write to it, and what arrived is a leaf of the graph.
            flat[: prod(lacks.shape)].view(lacks.shape).clone()
            for flat, lacks in zip(arrived, lacking, strict=True)
        ]
        assert self._run is not None  # only called in a step
        try:
            ended = self._run(number, received)
        except Exception as error:
            self._failure = error
            raise
        if self._is_last:
            return ended.reshape(1)
        return tuple(
            _flat(tensor, length) for tensor, (length, _) in zip(ended, self._leaving, strict=True)
        )


class _Stage(PipelineStage):
    """One that says of which micro-batch a backward begins and ends."""

    around_backward: Callable[[int], AbstractContextManager[None]]

    def backward_one_chunk(self, bwd_chunk_id: int, *args: Any, **kwargs: Any) -> None:
        with self.around_backward(bwd_chunk_id):
            super().backward_one_chunk(bwd_chunk_id, *args, **kwargs)


class _StageModule(nn.Module):
    """What the schedule calls. It owns no parameters: the model does."""

    def __init__(self, traffic: Traffic) -> None:
        super().__init__()
        self._traffic = traffic

    def forward(self, *arrived: torch.Tensor, number: torch.Tensor | None = None) -> Any:
        if number is None:
            return self._traffic.forward(int(arrived[0]), ())
        return self._traffic.forward(int(number), arrived)


def _lengths(lacking: Sequence[Sequence[Lacking]]) -> list[tuple[int, torch.dtype]]:
    """Length and type of each tensor that travels, for the longest of the micro-batches."""
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
    # Frozen layers give no gradient a way; the schedule sends one back all the same.
    return flat if flat.requires_grad else flat.detach().requires_grad_()
