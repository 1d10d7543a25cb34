"""The random numbers of a task whose model draws from one stream, from its first step to its last.

Saturn's tasks seed each batch anew. A trainer seeds once, and everything draws from there on: its
loader at the start of each epoch, and every forward. On a gang of one that is done here, number by
number; so dropout is the trainer's own. On more ranks it can't be, and each batch is seeded as of
any task; the stream stays where the last step on one rank has left it.

Fetching draws from seeds of its own, as of any task: where samples or their collation draw, the
stream is not the trainer's.

Where the stream stands goes into the checkpoint's manifest.
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

    @contextmanager
    def of_step(self, batches: int) -> Iterator[None]:
        """Within it one step, which begins after so many batches, draws from the stream."""
        with self._now.again():
            if batches % self._epoch_batches == 0:
                self._step_loss.begin_epoch()
            yield
            self._now = RandomState.now(self._device)

    def state(self) -> dict[str, Any]:
        """What goes into the manifest."""
        return self._now.as_json()

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from what `state` gave."""
        self._now = RandomState.from_json(state, self._device)
