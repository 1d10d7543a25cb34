"""Trials of an earlier run, for tasks that perform alike.

A run directory holds them twice over: `request.json` says which profile key each task had, and
`report.json` what was tried for it.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from saturn.errors import InvalidInput
from saturn.result import strategies_by_task
from saturn.run_directory import REQUEST
from saturn.strategy import Strategy


def load(run_dir: str | os.PathLike[str]) -> dict[str, list[Strategy]]:
    """Strategies by profile key, from the directory of an earlier search or run."""
    directory = Path(run_dir)
    request = _read(directory / REQUEST)
    report = _read(directory / "report.json")
    try:
        keys = [task["profile_key"] for task in request["tasks"]]
        # What failed then may have been mended since, and is tried again.
        found = [
            [strategy for strategy in strategies if strategy.status != "failed"]
            for strategies in strategies_by_task(report)
        ]
        return {key: strategies for key, strategies in zip(keys, found, strict=True) if strategies}
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise InvalidInput(f"profile {directory}: not a run of this version: {error!r}") from error


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise InvalidInput(
            f"profile: {path} can't be read ({error}); give the directory of a run that has ended"
        ) from error
