"""Where a submitted task comes from: the working directory and the import path of its submitter.

A run's processes have those of the program that started the run. A task that another program
submits later may import modules from other places, and read files by relative paths. So its
surroundings are written beside its pickle, and a rank takes them up before it loads the task.

Environment variables and installed packages are not part of them: a rank has those of the run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

#: The file beside a task's pickle; a task that came with its run's start has none.
FILE = "submitted_from.json"
_VERSION = 1


@dataclass(frozen=True)
class Surroundings:
    """What a program's relative paths and imports depend on."""

    cwd: str
    #: Where the program's own modules are, in order; installed packages are elsewhere.
    python_path: tuple[str, ...]

    @classmethod
    def here(cls) -> Surroundings:
        """Those of this process."""
        return cls(str(Path.cwd()), tuple(program_path()))

    @classmethod
    def of(cls, task_dir: Path) -> Surroundings | None:
        """Those of a task by its directory; None if it came with its run's start.

        Raises `ValueError` if the file is not what `dumps` writes.
        """
        path = task_dir / FILE
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        if not isinstance(content, dict) or content.pop("version", None) != _VERSION:
            raise ValueError(f"{path} was written by another version of Saturn")
        return cls(content["cwd"], tuple(content["python_path"]))

    def dumps(self) -> bytes:
        """The content of the file."""
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    def take_up(self) -> None:
        """Make them this process's own; without the directory, if this machine has none such."""
        if Path(self.cwd).is_dir():
            os.chdir(self.cwd)
        self._import_from()

    def _import_from(self) -> None:
        sys.path[:] = dict.fromkeys([*self.python_path, *sys.path])


@contextmanager
def imports_of(task_dir: Path) -> Iterator[None]:
    """In this block, a task's functions find the modules that its submitter would find."""
    before = sys.path[:]
    if (surroundings := Surroundings.of(task_dir)) is not None:
        surroundings._import_from()
    try:
        yield
    finally:
        sys.path[:] = before


def program_path() -> list[str]:
    """Where this program's own modules are found: `sys.path` without Python's and its packages'."""
    inner = [Path(sys.prefix), Path(sys.base_prefix)]
    paths = [Path(path or Path.cwd()).absolute() for path in sys.path]
    return [str(path) for path in paths if not any(part in path.parents for part in inner)]
