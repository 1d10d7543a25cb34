"""Run batches forward through the stages, without a backward: for an evaluation.

A batch passes whole, so that its outputs are the whole model's, however the model uses a batch. A
stage that has sent a batch on takes the next batch, so several stages work at the same time.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

from saturn.data import seeds
from saturn.techniques.pipeline.line import Line
from saturn.techniques.pipeline.rehearsal import Shapes
from saturn.techniques.pipeline.stage_forward import StageForward

#: How many shapes of batches are kept.
_MAX_SHAPES = 64


class Passage:
    """One rank's part in the forwards of an evaluation."""

    def __init__(self, stage: StageForward, line: Line) -> None:
        self._stage, self._line = stage, line
        # Kept apart from training's shapes, because in training the model may run other code.
        self._shapes: dict[str, Shapes] = {}
        #: Tensors that are being sent, with their transfers.
        self._leaving: list[tuple[list[torch.Tensor], list[dist.Work]]] = []

    def run(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: str) -> Any:
        """The model's outputs on the last stage; None on others. Every rank calls this.

        `key` is equal for inputs of equal shapes.
        """
        stage, line = self._stage, self._line
        # Equal on every rank of the pipeline, because the batch's seed is.
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
        """Wait until all sent tensors have arrived."""
        while self._leaving:
            for work in self._leaving.pop(0)[1]:
                work.wait()

    def _send(self, tensors: list[torch.Tensor], place: int) -> None:
        # At most one batch ahead of the next stage, because sent tensors stay in memory until then.
        while len(self._leaving) >= len(self._line.stages):
            for work in self._leaving.pop(0)[1]:
                work.wait()
        sent = [tensor.contiguous() for tensor in tensors]
        self._leaving.append((sent, self._line.send(sent, place)))

    def _found(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: str, seed: int) -> Shapes:
        if key not in self._shapes:
            if len(self._shapes) >= _MAX_SHAPES:
                self._shapes.clear()
            # A rehearsal needs the graph, to find tensors that layers leave behind.
            with seeds.RandomState.now(self._line.device).again(), torch.enable_grad():
                self._shapes[key] = self._stage.rehearse(args, kwargs, seed)
        return self._shapes[key]
