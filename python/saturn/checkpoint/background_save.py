"""One save that goes on while training does: a thread of this rank, and what came of it.

The thread begins by copying the state, and training stands still until that is done. What the
thread writes, and in which order, is the caller's.
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
    save_s: float  # from its beginning until it counted
    blocked_s: float  # for how much of that training stood still
    failure: Failure | None = None  # why it doesn't count


class BackgroundSave:
    """Runs `write` in a thread; `write` calls what it is given once the state may change."""

    def __init__(
        self,
        write: Callable[[Callable[[], None]], None],
        *,
        step: int,
        began: float,
        device: torch.device,
    ) -> None:
        """`began`: when this save began for the training loop, on the monotonic clock."""
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
        """Wait for its end, and say how it ended."""
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
                torch.accelerator.set_device_index(self._device)  # each thread has one of its own
            self._write(self._staged.set)
        except BaseException as error:
            self._failure = describe(error)
        finally:
            self._taken_s = time.monotonic() - self._began
            self._staged.set()
