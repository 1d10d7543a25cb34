"""Batches through the stages without a way back: what an evaluation needs of a pipeline.

A batch passes whole, so that its outputs are those of the whole model, however the model looks at
a batch. A stage that has sent a batch on takes the next one: of several batches in a row each stage
works on another.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from saturn.data import seeds
from saturn.techniques.pipeline.line import Line
from saturn.techniques.pipeline.rehearsal import Shapes
from saturn.techniques.pipeline.stage_forward import StageForward

#: Shapes of batches that are remembered.
_MAX_SHAPES = 64


class Passage:
    """One rank's part in the forwards of an evaluation."""

    def __init__(self, stage: StageForward, line: Line) -> None:
        self._stage, self._line = stage, line
        # Not those of training, in which the model may take other ways.
        self._shapes: dict[str, Shapes] = {}
        #: What is being sent, and to where.
        self._leaving: list[tuple[list[torch.Tensor], list[dist.Work]]] = []

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> Any:
        """The model's outputs on the last stage; None elsewhere. Every rank calls it.

        `key` is equal for inputs of equal shapes.
        """
        stage, line = self._stage, self._line
        # The same on every rank of the pipeline, because the batch's seed is.
        seed = int(torch.randint(2**62, ()))
        shapes = self._found(args, kwargs, key, seed)
        outputs = None
        for number in line.stages:
            received = [
                torch.empty(lacks.shape, dtype=lacks.dtype, device=line.device)
                for lacks in shapes.lacking[number]
            ]
            if number:
                line.receive(received, line.place_of(number - 1))
            ended = stage.run(number, args, kwargs, shapes, received, seed)
            if stage.is_last(number):
                outputs = ended
            else:
                self._send(ended, line.place_of(number + 1))
        return outputs

    def finish(self) -> None:
        """Wait until all that was sent has arrived."""
        while self._leaving:
            for work in self._leaving.pop(0)[1]:
                work.wait()

    def _send(self, tensors: list[torch.Tensor], place: int) -> None:
        # One batch ahead of the next stage, and no more: what is sent is held until it has arrived.
        while len(self._leaving) >= len(self._line.stages):
            for work in self._leaving.pop(0)[1]:
                work.wait()
        sent = [tensor.contiguous() for tensor in tensors]
        self._leaving.append((sent, self._line.send(sent, place)))

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: str, seed: int) -> Shapes:
        if key not in self._shapes:
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            # A rehearsal looks at the graph, to see what layers leave behind.
            with seeds.RandomState.now(self._line.device).again(), torch.enable_grad():
                self._shapes[key] = self._stage.rehearse(args, kwargs, seed)
        return self._shapes[key]
