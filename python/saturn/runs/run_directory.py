"""Make a fresh run directory, and fill it with the files that the run's processes read.

The pickles are `tasks/<slug>/task.pkl`, `techniques/<name>.pkl` and `loggers.pkl`; only their owner
may read the directory. They are durable before the runtime gets the request, which it writes into
its journal. So a directory without a journal is no run, and nothing in it is ever loaded.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from saturn.errors import InvalidInput, RunFailed
from saturn.library import Entry
from saturn.loggers import Logger
from saturn.plain import durable
from saturn.plain.names import SAFE_RULE, is_path_safe, slug
from saturn.tasks.directories import NAME
from saturn.tasks.pickling import dump
from saturn.tasks.surroundings import STARTED, SUBMITTED, Surroundings
from saturn.tasks.task import Task
from saturn.tasks.tracked_config import config_of

#: The file with the run's loggers; a run without loggers has no such file.
LOGGERS = "loggers.pkl"


def create(runs_dir: str | os.PathLike[str], name: str | None, verb: str) -> Path:
    """Make the directory of a new run; raises `InvalidInput` if the name is taken."""
    parent = Path(runs_dir).absolute()
    try:
        durable.make_directory(parent)
    except (FileExistsError, NotADirectoryError):
        raise InvalidInput(f"runs_dir {parent} is no directory; choose another") from None
    except OSError as error:
        raise RunFailed(f"{parent} can't be made: {error}") from error
    if name is not None:
        if not isinstance(name, str) or not is_path_safe(name):
            raise InvalidInput(f"run name {name!r} must be {SAFE_RULE}")
        try:
            _make(parent / name)
        except FileExistsError:
            if not has_begun(parent / name):
                raise InvalidInput(
                    f"{parent / name} is there already, and no run has begun in it; remove it, or "
                    "choose another name"
                ) from None
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
            _make(path)
        except FileExistsError:
            number += 1
            continue
        return path


def write_tasks(
    run_dir: Path,
    tasks: Sequence[Task],
    pickles: Sequence[bytes],
    surroundings: Surroundings | None = None,
) -> list[str]:
    """Write the pickled tasks; returns their directories, relative to the run directory.

    The run may be in progress and have tasks already, or directories of tasks that it refused.
    `surroundings` are those of tasks that are submitted to it. If a file can't be written, none of
    the directories is left.
    """
    durable.make_directory(run_dir / "tasks")
    first = sum(1 for _ in (run_dir / "tasks").iterdir())
    directories: list[str] = []
    try:
        for index, task in enumerate(tasks, first):
            fresh = _fresh_directory(run_dir / "tasks", task.name, index)
            directories.append(f"tasks/{fresh}")
        _write_tasks(run_dir, tasks, pickles, surroundings, directories)
    except BaseException:
        for directory in directories:
            shutil.rmtree(run_dir / directory, ignore_errors=True)
        raise
    return directories


def _write_tasks(
    run_dir: Path,
    tasks: Sequence[Task],
    pickles: Sequence[bytes],
    surroundings: Surroundings | None,
    directories: Sequence[str],
) -> None:
    files = {f"{path}/task.pkl": data for path, data in zip(directories, pickles, strict=True)}
    for path, task in zip(directories, tasks, strict=True):
        if Path(path).name != task.name:
            files[f"{path}/{NAME}"] = task.name.encode()
    if surroundings is not None:
        files |= {f"{path}/{SUBMITTED}": surroundings.dumps() for path in directories}
    if (run_dir / LOGGERS).exists():
        for path, task in zip(directories, tasks, strict=True):
            files[f"{path}/config.json"] = json.dumps(config_of(task), allow_nan=True).encode()
    _write(run_dir, files)


def _fresh_directory(parent: Path, name: str, index: int) -> str:
    path = parent / slug(name, index)
    while True:
        try:
            path.mkdir()
        except FileExistsError:
            path = parent / f"_task-{index}"
            index += 1
        else:
            return path.name


def write_surroundings(run_dir: Path) -> None:
    """Write where the run is started from; tasks that are submitted later may be from elsewhere."""
    _write(run_dir, {STARTED: Surroundings.here().dumps()})


def write_loggers(run_dir: Path, loggers: Sequence[Logger]) -> None:
    """Write the run's loggers, if it has any; to be called before `write_tasks`."""
    if loggers:
        _write(run_dir, {LOGGERS: dump(list(loggers), "loggers")})


def write_techniques(run_dir: Path, entries: Sequence[Entry]) -> list[dict[str, Any]]:
    """Write techniques that can't be imported; returns each technique in the runtime's form."""
    described = []
    files = {}
    for entry in entries:
        pickle = None
        if entry.import_path is None:
            pickle = f"techniques/{entry.name}.pkl"
            files[pickle] = dump(entry.technique, f"technique `{entry.name}`")
        described.append(
            {
                "name": entry.name,
                "level": entry.level,
                "import": entry.import_path,
                "pickle": pickle,
            }
        )
    _write(run_dir, files)
    return described


def has_begun(run_dir: Path) -> bool:
    """Whether this is a run's directory, so that all files written here are complete."""
    return (run_dir / "journal.db").exists()


def is_joined(run_dir: Path) -> bool:
    """Whether this is this person's directory of a pool that another person drives (`joined`).

    There `control.sock` leads to the pool's door; in the directory of a run it is a socket.
    """
    return (run_dir / "control.sock").is_symlink()


def remove_unbegun(run_dir: Path) -> None:
    """Remove the directory of a refused run; with a journal it is a run, and stays."""
    if not has_begun(run_dir):
        shutil.rmtree(run_dir, ignore_errors=True)


def _make(run_dir: Path) -> None:
    run_dir.mkdir(mode=0o700)
    durable.sync(run_dir.parent)


def _write(run_dir: Path, files: Mapping[str, bytes]) -> None:
    """Write new files, by their paths in the run directory, and make them durable."""
    directories = {parent for name in files for parent in Path(name).parents}
    try:
        for directory in sorted(directories):  # a parent comes before its content
            (run_dir / directory).mkdir(exist_ok=True)
        for name, data in files.items():
            descriptor = os.open(run_dir / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        durable.sync_all(run_dir / path for path in [*map(Path, files), *directories])
    except OSError as error:
        remove_unbegun(run_dir)
        raise RunFailed(f"{run_dir} can't be written: {error}") from error
