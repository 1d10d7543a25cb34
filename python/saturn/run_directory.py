"""A fresh run directory: made, and filled with what the run's processes read.

`tasks/<slug>/task.pkl` and `techniques/<name>.pkl` are the pickles; only their owner may look in.
What the runtime is asked goes into its journal.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from saturn.errors import InvalidInput
from saturn.library import Entry
from saturn.names import SAFE_RULE, is_path_safe, slug
from saturn.pickling import dump
from saturn.task import Task


def create(runs_dir: str | os.PathLike[str], name: str | None, verb: str) -> Path:
    """Make the directory of a new run; raises `InvalidInput` where the name is taken."""
    parent = Path(runs_dir).absolute()
    parent.mkdir(parents=True, exist_ok=True)
    if name is not None:
        if not isinstance(name, str) or not is_path_safe(name):
            raise InvalidInput(f"run name {name!r} must be {SAFE_RULE}")
        try:
            (parent / name).mkdir(mode=0o700)
        except FileExistsError:
            raise InvalidInput(
                f"run `{name}` is there already, in {parent}; choose another name, or go on with "
                f"it: saturn resume {parent / name}"
            ) from None
        return parent / name
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    number = 1
    while True:
        path = parent / (f"{verb}-{stamp}" if number == 1 else f"{verb}-{stamp}-{number}")
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            number += 1
            continue
        return path


def write_tasks(run_dir: Path, tasks: Sequence[Task], pickles: Sequence[bytes]) -> list[str]:
    """Write the pickled tasks; returns their directories, within the run directory.

    The run may be in progress and have tasks already, or leavings of some that it never took.
    """
    (run_dir / "tasks").mkdir(exist_ok=True)
    first = sum(1 for _ in (run_dir / "tasks").iterdir())
    directories = []
    for index, (task, data) in enumerate(zip(tasks, pickles, strict=True), first):
        directory = _fresh_directory(run_dir / "tasks", task.name, index)
        _write_private(directory / "task.pkl", data)
        directories.append(f"tasks/{directory.name}")
    return directories


def _fresh_directory(parent: Path, name: str, index: int) -> Path:
    path = parent / slug(name, index)
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            path = parent / f"_task-{index}"
            index += 1
        else:
            return path


def write_techniques(run_dir: Path, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Write the techniques that can't be imported; returns what the runtime is told of each."""
    described = []
    for entry in entries:
        pickle = None
        if entry.import_path is None:
            pickle = f"techniques/{entry.name}.pkl"
            (run_dir / "techniques").mkdir(exist_ok=True)
            data = dump(entry.technique, f"technique `{entry.name}`")
            _write_private(run_dir / pickle, data)
        described.append(
            {
                "name": entry.name,
                "level": entry.level,
                "import": entry.import_path,
                "pickle": pickle,
            }
        )
    return described


def is_run(path: Path) -> bool:
    """Whether a run has begun there."""
    return (path / "journal.db").is_file()


def remove_unbegun(run_dir: Path) -> None:
    """Remove the directory of a run that was refused: with a journal, it is a run and stays."""
    if not is_run(run_dir):
        shutil.rmtree(run_dir, ignore_errors=True)


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
