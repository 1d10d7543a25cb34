"""The tasks of a run about which a tuner decides, and what the tuner may do in the run.

`Scope` is the whole run. A sweep of a pool has less (`tuning.steered`).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from saturn.runs.live import Run
    from saturn.tasks.task import Task


class Scope:
    """A whole run, with all its tasks."""

    #: Which tasks a message about the tuner concerns, such as " of the sweep `lr`".
    of_sweep = ""

    def __init__(self, run: Run) -> None:
        """Make it of a run in progress, or of one that is about to begin."""
        self.run = run
        #: How many devices the run has, as far as it was seen.
        self.num_devices = 1

    @property
    def directory(self) -> Path:
        """The directory in which the tuner is kept."""
        return self.run.run_dir

    @property
    def takes_suggestions(self) -> bool:
        """Whether a study may still suggest tasks."""
        return True

    def has(self, name: str) -> bool:
        """Whether the tuner decides about the task of this name."""
        return True

    def is_own(self, task: Mapping[str, Any]) -> bool:
        """Whether the tuner decides about this task of a status."""
        return self.has(task["name"])

    def is_complete(self, status: Mapping[str, Any]) -> bool:
        """Whether no more tasks will come about which the tuner decides."""
        return bool(status["is_closed"])

    def clock_s(self, status: Mapping[str, Any]) -> float:
        """The time of a status on the tuner's clock."""
        return float(status["now_s"])

    def submit(self, task: Task) -> None:
        """Add a task to the run; raises `InvalidInput`, `RunOver`."""
        self.run.submit(task)

    def close(self) -> None:
        """Say that no more tasks will come."""
        self.run.close()

    def note(self, text: str) -> None:
        """Tell people something about the tuner; raises `InvalidInput`, `RunFailed`."""
        self.run._command({"command": "note", "text": text})

    def stop(self) -> None:
        """Stop the run at checkpoints, because the tuner can't go on."""
        self.run.stop()
