"""`metrics.jsonl`: a line for each step and each evaluation, appended during training.

The same values go to TensorBoard's event file (`event_file`), if there is one.

A step that is trained again after a crash occurs twice; the later line counts. A crash may leave
half a line, which stays as a line of its own: readers skip it. Lines that can't be written, as on
a full disk, are kept and written later: training never ends because of a metric.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saturn.plain.measures import plain
from saturn.plain.series import values_of
from saturn.worker.event_file import EventFile


class Metrics:
    """The metrics file of a task; lines are only appended."""

    def __init__(self, task_dir: Path, events: EventFile | None = None) -> None:
        self._events = events
        self._path = task_dir / "metrics.jsonl"
        self._descriptor: int | None = None  # None until the file could be opened
        self._unwritten = b""
        #: Why some lines couldn't be written yet; None if all are written.
        self.failure: OSError | None = None

    def add(self, step: int, loss: float, more: Mapping[str, float | None] | None = None) -> None:
        """Add the loss of step `step`, counted from 1.

        `more` is what else is known of the step, by name; values that aren't known are left out.
        """
        known = {name: value for name, value in (more or {}).items() if _is_known(value)}
        self._add({"step": step, "loss": plain(loss), **known})

    def add_evaluation(self, step: int, metrics: Mapping[str, float]) -> None:
        """Add the metrics of the evaluation after `step` steps."""
        self._add({"step": step, "evaluation": plain(metrics)})

    def _add(self, content: dict[str, Any]) -> None:
        if self._events is not None and (values := values_of(content)):
            self._events.add(content["step"], values)
        self._unwritten += (json.dumps({**content, "t": time.time()}) + "\n").encode()
        # Written at once: a killed rank loses no metric of a step that it had reported.
        self._write()

    def close(self) -> None:
        """Close the file: nothing more will be added."""
        if self._unwritten:
            self._write()
        if self._descriptor is not None:
            with contextlib.suppress(OSError):
                os.close(self._descriptor)
        if self._events is not None:
            self._events.close()

    def _write(self) -> None:
        try:
            if self._descriptor is None:
                # A rank that was killed while writing leaves half a line. The next line must not
                # be appended to that half.
                is_torn = _is_torn(self._path)
                flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._descriptor = os.open(self._path, flags, 0o600)
                self._unwritten = b"\n" * is_torn + self._unwritten
            while self._unwritten:
                self._unwritten = self._unwritten[os.write(self._descriptor, self._unwritten) :]
            self.failure = None
        except OSError as error:
            self.failure = error


def _is_known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _is_torn(path: Path) -> bool:
    """Whether the file's last line has no newline at its end."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False
