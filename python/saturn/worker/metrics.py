"""`metrics.jsonl`: a line for each step, appended as training goes.

A step that is trained again after a crash occurs twice; the later line counts.
"""

from __future__ import annotations

import json
import math
import time
from pathlib import Path


class Metrics:
    """The metrics file of a task, open for appending."""

    def __init__(self, task_dir: Path) -> None:
        # Line by line: a killed rank loses no metric of a step that it had reported.
        self._file = (task_dir / "metrics.jsonl").open("a", buffering=1)

    def add(self, step: int, loss: float) -> None:
        """Add the loss of step `step`, counted from 1; null where it is no finite number."""
        value = loss if math.isfinite(loss) else None
        self._file.write(json.dumps({"step": step, "loss": value, "t": time.time()}) + "\n")

    def close(self) -> None:
        """Nothing more will be added."""
        self._file.close()
