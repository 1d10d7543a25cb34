"""The random numbers of a task whose model draws from one stream, from its first step to its last.

Saturn's tasks seed each batch anew. A trainer seeds once, and everything draws from there on: its
loader at the start of each epoch, every forward, and each evaluation. On a gang of one that is done
here, number by number; so dropout is the trainer's own. On more ranks forwards can't draw so, and
each batch is seeded as of any task; epochs and evaluations move the stream there too, the same on
every rank, since the order of samples may follow from it.

Fetching draws from seeds of its own, as of any task: where samples or their collation draw, the
stream is not the trainer's.

Where the stream stands, and where it stood when the epoch began, goes into the checkpoint's
manifest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from saturn.data.seeds import RandomState
from saturn.training.step_loss import StepLoss


class Draws:
    """Where the stream of one task stands."""

    def __init__(self, step_loss: StepLoss, device: torch.device, epoch_batches: int) -> None:
        """It begins where `step_loss` says."""
        self._step_loss, self._device = step_loss, device
        self._epoch_batches = epoch_batches
        self._now = step_loss.random_start()
        if device.type != "cpu":
            with RandomState.now(device).again():
                torch.get_device_module(device).manual_seed(step_loss.seed)
                of_device = RandomState.now(device)
            self._now = self._now.with_device(of_device)
        #: The epoch at work, and where the stream stood when it began.
        self._epoch, self._epoch_start = 0, self._now
        #: Evaluations that have begun.
        self._evaluations = 0
        step_loss.follow(self._start_of)

    @contextmanager
    def drawing(self) -> Iterator[None]:
        """Within it everything draws from the stream."""
        with self._now.again():
            yield
            self._now = RandomState.now(self._device)

    def begin_step(self, batches: int) -> None:
        """Draw what is drawn before a step that begins after so many batches."""
        epoch, batch = divmod(batches, self._epoch_batches)
        if batch == 0:
            self._epoch, self._epoch_start = epoch, self._now
            with self.drawing():
                self._step_loss.begin_epoch(epoch)

    def begin_evaluation(self) -> None:
        """Draw what is drawn when an evaluation begins, if that is the trainer's own."""
        with self.drawing():
            self._step_loss.begin_evaluation(self._evaluations)
        self._evaluations += 1

    @contextmanager
    def unmoved(self) -> Iterator[None]:
        """After the block the stream stands where it stood before."""
        before = self._now, self._evaluations
        try:
            yield
        finally:
            self._now, self._evaluations = before

    def state(self) -> dict[str, Any]:
        """What goes into the manifest."""
        return {
            **self._now.as_json(),
            "epoch": self._epoch,
            "epoch_start": self._epoch_start.as_json(),
            "evaluations": self._evaluations,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._now = RandomState.from_json(state, self._device)
        self._epoch = state["epoch"]
        self._epoch_start = RandomState.from_json(state["epoch_start"], self._device)
        self._evaluations = state["evaluations"]

    def _start_of(self, epoch: int) -> RandomState:
        """Where the stream stands when `epoch` begins: the one at work, or the next."""
        return self._epoch_start if epoch == self._epoch else self._now
