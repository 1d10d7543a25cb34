"""Save in a thread while training goes on, and report how the save ended.

The thread first copies the state, and training stands still until the copy is done. What the thread
writes, and in which order, is the caller's business.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from saturn.rank.failure import Failure, describe


@dataclass(frozen=True, kw_only=True)
class Save:
    """How one save ended."""

    step: int
    save_s: float  # seconds from its beginning until the checkpoint was valid
    blocked_s: float  # seconds of these for which training stood still
    failure: Failure | None = None  # why the checkpoint is not valid


class BackgroundSave:
    """Runs `write` in a thread; `write` calls its argument once the state may change again."""

    def __init__(
        self,
        write: Callable[[Callable[[], None]], None],
        *,
        step: int,
        began: float,
        device: torch.device,
    ) -> None:
        """`began` is when the training loop began this save, on the monotonic clock."""
        self._write = write
        self._step = step
        self._began = began
        self._device = device
        self._staged = threading.Event()
        self._blocked_s = 0.0
        self._taken_s = 0.0
        self._failure: Failure | None = None
        self._thread = threading.Thread(target=self._run, name="saturn-save", daemon=True)
        self._thread.start()

    def wait_until_staged(self) -> None:
        """Return once the state may change; training stands still until then."""
        self._staged.wait()
        self._blocked_s = time.monotonic() - self._began

    @property
    def has_ended(self) -> bool:
        """Whether `result` would return at once."""
        return not self._thread.is_alive()

    def result(self) -> Save:
        """Wait for the save's end; returns how it ended."""
        self._thread.join()
        return Save(
            step=self._step,
            save_s=self._taken_s,
            blocked_s=min(self._blocked_s, self._taken_s),
            failure=self._failure,
        )

    def _run(self) -> None:
        try:
            if self._device.type != "cpu":
                torch.accelerator.set_device_index(self._device)  # the index is set per thread
            self._write(self._staged.set)
        except BaseException as error:
            self._failure = describe(error, device_kind=self._device.type)
        finally:
            self._taken_s = time.monotonic() - self._began
            self._staged.set()
