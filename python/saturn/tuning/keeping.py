"""Keep a run's tuner in its run directory, from where `saturn resume` loads it.

The tuner is a pickle, like the tasks: resume only runs made by you or by people you trust.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import sys
from pathlib import Path
from typing import Any

from saturn.errors import InvalidInput
from saturn.plain import durable
from saturn.tasks.pickling import dump
from saturn.tuning.tuner import Tuner

#: The file's name; the program `saturn` looks for the same name (`run_files/tuners.rs`).
FILE = "tuner.pkl"
#: The file with the tuner's goal, for processes that only add tasks. They load no tuner, whose
#: modules they may lack.
_GOAL = "goal.json"


def write(run_dir: Path, tuner: Tuner) -> None:
    """Write the tuner, replacing an earlier one; raises `NotPicklable`, `OSError`."""
    content = {
        "python_path": [path or str(Path.cwd()) for path in sys.path],
        "tuner": dump(tuner, "the stopper" if not tuner.suggests else "the study"),
    }
    _replace(run_dir / FILE, pickle.dumps(content))
    if not (run_dir / _GOAL).exists():  # it never changes
        _replace(run_dir / _GOAL, json.dumps(tuner.goal).encode())
    durable.sync(run_dir)


def _replace(path: Path, content: bytes) -> None:
    """Put a file that only this user reads in the place of an earlier one, all of it or nothing."""
    fresh = path.with_name(f"{path.name}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


def goal_of(run_dir: Path) -> dict[str, Any]:
    """The goal for a run's tasks that have none of their own, as `Tuner.goal` gives it."""
    with contextlib.suppress(OSError, ValueError):
        goal = json.loads((run_dir / _GOAL).read_text())
        if isinstance(goal, dict):
            return goal
    return {}


def read(run_dir: Path) -> Tuner | None:
    """The run's tuner; None if it has none. Raises `InvalidInput` if it can't be loaded."""
    try:
        data = (run_dir / FILE).read_bytes()
    except FileNotFoundError:
        return None
    try:
        content = pickle.loads(data)
        sys.path += [path for path in content["python_path"] if path not in sys.path]
        tuner: Tuner = pickle.loads(content["tuner"])
    except Exception as error:
        raise InvalidInput(
            f"the stopper or study of the run, {run_dir / FILE}, can't be loaded here: "
            f"{type(error).__name__}: {error}"
        ) from error
    return tuner
