"""Measure the layers of a stage while a trial's first steps run.

The steps are the task's own, and measuring changes nothing in them. In the forward, the moments are
noted when layers begin and end; in the backward, the moments when the gradients of their outputs
arrive. The time between two moments belongs to the layer that began at the first. On a device that
runs asynchronously the moments are its events, so that nobody waits for the device.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from saturn.techniques.pipeline.balance import Seen

#: Number of measured steps. The first is slow, but too few micro-batches to move a median.
_STEPS = 3
#: One pass of a micro-batch: moments, each with the layer that begins there, or None.
_Pass = list[tuple[int | None, Any]]


class LayerTimes:
    """Measures the layers of one stage for a few steps."""

    def __init__(self, stage: int, layers: Mapping[int, nn.Module], device: torch.device) -> None:
        """`layers` are this stage's layers, by their numbers in the chain."""
        self._stage, self._device = stage, device
        self._steps = 0
        self._at_work: _Pass | None = None
        self._in_forward = False
        self._forwards: list[_Pass] = []
        self._backwards: list[_Pass] = []
        self._hooks = [
            hook for number, layer in layers.items() for hook in self._watch(number, layer)
        ]

    @contextmanager
    def forward(self) -> Iterator[None]:
        """The context of the stage's forward of a micro-batch."""
        self._in_forward = True
        try:
            with self._noting(self._forwards):
                yield
        finally:
            self._in_forward = False

    @contextmanager
    def backward(self) -> Iterator[None]:
        """The context of the stage's backward of a micro-batch."""
        with self._noting(self._backwards):
            yield

    def step_ended(self) -> None:
        """Note the end of a step; after a few steps, measuring stops."""
        self._steps += 1
        if self._steps == _STEPS:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []

    def seen(self) -> Seen:
        """The measured times: medians over the micro-batches."""
        if self._device.type != "cpu":
            torch.accelerator.synchronize(self._device)
        total: dict[int | None, float] = {None: 0.0}
        for passes in (self._forwards, self._backwards):
            for key, seconds in self._medians(passes).items():
                total[key] = total.get(key, 0.0) + seconds
        rest = total.pop(None)
        return Seen(self._stage, {key: s for key, s in total.items() if key is not None}, rest)

    def _watch(self, number: int, layer: nn.Module) -> Iterator[Any]:
        def begins(*_: Any) -> None:
            if self._in_forward:  # not in the backward, which may recompute the layer
                self._note(number)

        def ended(_: nn.Module, __: Any, outputs: Any) -> None:
            if not self._in_forward:
                return
            self._note(None)
            for leaf in pytree.tree_leaves(outputs):
                if isinstance(leaf, torch.Tensor) and leaf.requires_grad:
                    leaf.register_hook(lambda _: self._note(number))  # type: ignore[no-untyped-call]
                    return

        yield layer.register_forward_pre_hook(begins)
        yield layer.register_forward_hook(ended)

    @contextmanager
    def _noting(self, passes: list[_Pass]) -> Iterator[None]:
        if not self._hooks:
            yield
            return
        self._at_work = []
        self._note(None)
        yield
        self._note(None)
        passes.append(self._at_work)
        self._at_work = None

    def _note(self, number: int | None) -> None:
        if self._at_work is not None:
            self._at_work.append((number, self._moment()))

    def _moment(self) -> Any:
        if self._device.type == "cpu":
            return time.perf_counter()
        event = torch.Event(device=self._device, enable_timing=True)
        event.record()
        return event

    def _seconds(self, start: Any, end: Any) -> float:
        if self._device.type == "cpu":
            return float(end - start)
        return float(start.elapsed_time(end)) / 1e3

    def _medians(self, passes: Sequence[_Pass]) -> dict[int | None, float]:
        """Median seconds of a pass by layer; None is the key of the code around the layers."""
        taken: dict[int | None, list[float]] = {}
        for each in passes:
            own: dict[int | None, float] = {}
            for (number, start), (_, end) in pairwise(each):
                own[number] = own.get(number, 0.0) + self._seconds(start, end)
            for number, seconds in own.items():
                taken.setdefault(number, []).append(seconds)
        return {number: median(seconds) for number, seconds in taken.items()}
