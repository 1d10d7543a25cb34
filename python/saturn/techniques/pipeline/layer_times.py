"""What the layers of a stage take, seen while a trial's first steps run.

The steps are the task's own, and nothing in them changes: the moments at which layers begin and end
are noted in the forward, those at which the gradients of their outputs are there in the backward.
What lies between two moments is the time of the layer that began it. On a device that works on its
own the moments are its events, so that nobody waits for it.
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

#: Steps that are looked at. The first is slow, and few of the micro-batches.
_STEPS = 3
#: One pass of a micro-batch: moments, and the layer that begins there, if one does.
_Pass = list[tuple[int | None, Any]]


class LayerTimes:
    """Watches the layers of one stage for some steps."""

    def __init__(self, stage: int, layers: Mapping[int, nn.Module], device: torch.device) -> None:
        """`layers` are this stage's, by their numbers in the chain."""
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
        """Around the stage's forward of a micro-batch."""
        self._in_forward = True
        try:
            with self._noting(self._forwards):
                yield
        finally:
            self._in_forward = False

    @contextmanager
    def backward(self) -> Iterator[None]:
        """Around its backward."""
        with self._noting(self._backwards):
            yield

    def step_ended(self) -> None:
        """A step has ended; after some, nothing is watched any more."""
        self._steps += 1
        if self._steps == _STEPS:
            for hook in self._hooks:
                hook.remove()
            self._hooks = []

    def seen(self) -> Seen:
        """What was seen: the medians over the micro-batches."""
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
            if self._in_forward:  # and not again in the backward, for its activations
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
        """By layer, and by None for what is around them, what a pass takes."""
        taken: dict[int | None, list[float]] = {}
        for each in passes:
            own: dict[int | None, float] = {}
            for (number, start), (_, end) in pairwise(each):
                own[number] = own.get(number, 0.0) + self._seconds(start, end)
            for number, seconds in own.items():
                taken.setdefault(number, []).append(seconds)
        return {number: median(seconds) for number, seconds in taken.items()}
