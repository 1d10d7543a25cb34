"""The state of a run and its tasks, as `Run.status` returns it.

A status is a snapshot of one moment; it doesn't follow the run.
"""

from __future__ import annotations

import json
import shutil
from typing import Any

from saturn import native


class Status(dict[str, Any]):
    """What `saturn status --json` prints (docs/reference.md); `str` gives the table for people."""

    def task(self, name: str) -> dict[str, Any]:
        """The state of one task; raises `KeyError`."""
        for task in self["tasks"]:
            if task["name"] == name:
                found: dict[str, Any] = task
                return found
        raise KeyError(name)

    def __str__(self) -> str:
        """The table, as wide as the terminal."""
        return native.status_text(json.dumps(self), shutil.get_terminal_size().columns)
