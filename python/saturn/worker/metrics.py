"""`metrics.jsonl`: a line for each step, appended as training goes.

A step that is trained again after a crash occurs twice; the later line counts. A crash may leave
half a line, which stays as a line of its own: readers pass over it.
"""

from __future__ import annotations

import json
import math
import os
import time
from pathlib import Path


class Metrics:
    """The metrics file of a task, open for appending."""

    def __init__(self, task_dir: Path) -> None:
        path = task_dir / "metrics.jsonl"
        # A rank that was killed while it wrote leaves half a line, which must not swallow the next.
        is_torn = _is_torn(path)
        # Line by line: a killed rank loses no metric of a step that it had reported.
        self._file = path.open("a", buffering=1)
        if is_torn:
            self._file.write("\n")

    def add(self, step: int, loss: float) -> None:
        """Add the loss of step `step`, counted from 1; null where it is no finite number."""
        value = loss if math.isfinite(loss) else None
        self._file.write(json.dumps({"step": step, "loss": value, "t": time.time()}) + "\n")

    def close(self) -> None:
        """Nothing more will be added."""
        self._file.close()


def _is_torn(path: Path) -> bool:
    """Whether the last line of the file has no end."""
    try:
        with path.open("rb") as file:
            if file.seek(0, os.SEEK_END) == 0:
                return False
            file.seek(-1, os.SEEK_END)
            return file.read(1) != b"\n"
    except FileNotFoundError:
        return False
