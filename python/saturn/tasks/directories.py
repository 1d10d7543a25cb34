"""Which directory of a run is a task's, found without loading the functions of other tasks.

Other tasks may import what isn't here, or what has the names of this task's modules. A directory is
called as its task if that name is safe in a path. Any other directory holds its task's name in a
file.
"""

from __future__ import annotations

from pathlib import Path

from saturn.plain.names import is_path_safe
from saturn.tasks import definition as definitions
from saturn.tasks.importing import imports_of

#: The file with the task's name, in a directory that can't be called by it.
NAME = "name.txt"


def of_task(run_dir: Path, task: str) -> Path | None:
    """The directory of the task with that name; None if there is none."""
    named = {path.parent: _name_of(path.parent) for path in run_dir.glob("tasks/*/task.pkl")}
    found = [path for path, name in named.items() if name == task]
    if not found:  # an earlier version may have written it
        found = [path for path, name in named.items() if name is None and _load(path) == task]
    # A submission that the run refused leaves a directory in which nothing has trained.
    return max(sorted(found), default=None, key=lambda path: (path / "attempts").is_dir())


def _name_of(directory: Path) -> str | None:
    """The name of a directory's task; None if only its pickle has the name."""
    if is_path_safe(directory.name):
        return directory.name
    try:
        return (directory / NAME).read_text()
    except FileNotFoundError:
        return None


def _load(directory: Path) -> str:
    with imports_of(directory):
        return definitions.load(directory / "task.pkl").name
