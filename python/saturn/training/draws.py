"""The random numbers of a task whose model draws from one stream, from first to last step.

Saturn's own tasks seed each batch anew. A trainer seeds once, and everything draws from that
stream: its loader at each epoch's start, every forward, and each evaluation. On a gang of one rank
this module reproduces the stream number by number, so dropout is the trainer's own. On more ranks
forwards can't share a stream, so each batch is seeded as in any task. Epochs and evaluations still
move the stream, equally on every rank, since the order of samples may depend on it.

Fetching draws from seeds of its own, as in any task. If samples or their collation draw, the
stream differs from the trainer's.

The checkpoint's manifest holds the stream's state now and at the start of the epoch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from saturn.data.seeds import RandomState
from saturn.training.step_loss import StepLoss


class Draws:
    """The state of one task's random stream."""

    def __init__(self, step_loss: StepLoss, device: torch.device, epoch_batches: int) -> None:
        """Start the stream where `step_loss` says."""
        self._step_loss, self._device = step_loss, device
        self._epoch_batches = epoch_batches
        self._now = step_loss.random_start()
        if device.type != "cpu":
            with RandomState.now(device).again():
                torch.get_device_module(device).manual_seed(step_loss.seed)
                of_device = RandomState.now(device)
            self._now = self._now.with_device(of_device)
        #: The present epoch, and the stream's state when it began.
        self._epoch, self._epoch_start = 0, self._now
        #: How many evaluations have begun.
        self._evaluations = 0
        step_loss.follow(self._start_of)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Within this context, everything draws from the stream."""
        with self._now.again():
            yield
            self._now = RandomState.now(self._device)

    def begin_step(self, batches: int) -> None:
        """Draw what an epoch's start draws, if the step after `batches` begins an epoch."""
        epoch, batch = divmod(batches, self._epoch_batches)
        if batch == 0:
            self._epoch, self._epoch_start = epoch, self._now
            with self.drawing():
                self._step_loss.begin_epoch(epoch)

    def begin_evaluation(self) -> None:
        """Draw what the trainer would draw at the start of an evaluation."""
        with self.drawing():
            self._step_loss.begin_evaluation(self._evaluations)
        self._evaluations += 1

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """Within this context the stream may move; afterwards it is back where it was."""
        before = self._now, self._evaluations
        try:
            yield
        finally:
            self._now, self._evaluations = before

    def state(self) -> dict[str, Any]:
        """The stream's entry in the manifest."""
        return {
            **self._now.as_json(),
            "epoch": self._epoch,
            "epoch_start": self._epoch_start.as_json(),
            "evaluations": self._evaluations,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state that `state` returned."""
        self._now = RandomState.from_json(state, self._device)
        self._epoch = state["epoch"]
        self._epoch_start = RandomState.from_json(state["epoch_start"], self._device)
        self._evaluations = state["evaluations"]

    def _start_of(self, epoch: int) -> RandomState:
        """The stream's state when `epoch`, the present or the next one, begins."""
        return self._epoch_start if epoch == self._epoch else self._now
