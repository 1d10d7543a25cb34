"""Note durably, in the task's directory, where a script's last checkpoint lies.

The checkpoint's content is the script's own affair.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from saturn.plain import durable

_NAME = "script.json"


@dataclass(frozen=True)
class ScriptCheckpoint:
    """A checkpoint that a script has reported."""

    path: str
    step: int

    @property
    def is_there(self) -> bool:
        """Whether the checkpoint's path exists."""
        return Path(self.path).exists()

    def keep(self, task_dir: Path) -> None:
        """Note this checkpoint as the task's last."""
        file = task_dir / _NAME
        scratch = file.with_name(f".{_NAME}.{os.getpid()}")
        scratch.write_text(json.dumps({"checkpoint": self.path, "step": self.step}))
        durable.sync(scratch)
        scratch.replace(file)
        durable.sync(task_dir)


def last_of(task_dir: Path) -> ScriptCheckpoint | None:
    """The checkpoint that was noted last; None if there is none."""
    try:
        noted = json.loads((task_dir / _NAME).read_text())
    except FileNotFoundError:
        return None
    return ScriptCheckpoint(noted["checkpoint"], noted["step"])


def forget(task_dir: Path) -> None:
    """Drop the note: the checkpoint is gone."""
    (task_dir / _NAME).unlink(missing_ok=True)
