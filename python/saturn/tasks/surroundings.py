"""Where a task comes from: working directory, import path and Python of the program that made it.

These are a task's *surroundings*. The processes of a run have the surroundings of the program that
started the run. A task that another program submits later may import modules from other places, and
read files by relative paths. So the task's surroundings are written beside its pickle, and a rank
takes them up before it loads the task. The run has such a file too, so that a task of another
Python is refused.

Environment variables don't belong to the surroundings: a rank has the environment variables of the
program that drives the run.
"""

from __future__ import annotations

import json
import os
import re
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from saturn.errors import InvalidInput

#: The file beside a task's pickle; a task that came with its run's start has none.
SUBMITTED = "submitted_from.json"
#: The file in a run's directory.
STARTED = "started_from.json"
_VERSION = 1
_OF_ENVIRONMENT = re.compile(r"site-packages|dist-packages|python3[0-9.]*(\.zip)?")


@dataclass(frozen=True)
class Surroundings:
    """What a program's relative paths and imports depend on."""

    cwd: str
    #: The program's `sys.path`, made absolute.
    python_path: tuple[str, ...]
    #: Python's version, such as "3.11", and the directory of its environment.
    python: str
    environment: str

    @classmethod
    def here(cls) -> Surroundings:
        """Those of this process."""
        cwd = str(Path.cwd())
        paths = tuple(str(Path(cwd, path)) for path in sys.path)
        return cls(cwd, paths, ".".join(map(str, sys.version_info[:2])), sys.prefix)

    @classmethod
    def read(cls, path: Path) -> Surroundings | None:
        """Those in a file; None if there is no such file.

        Raises `ValueError` if another version of Saturn has written the file.
        """
        try:
            content = json.loads(path.read_bytes())
        except FileNotFoundError:
            return None
        if content.pop("version", None) != _VERSION:
            raise ValueError(f"{path} was written by another version of Saturn")
        return cls(**{**content, "python_path": tuple(content["python_path"])})

    def dumps(self) -> bytes:
        """The content of a file."""
        return json.dumps({"version": _VERSION, **asdict(self)}).encode()

    def refuse_other_python(self, of_run: Surroundings) -> None:
        """Raise `InvalidInput` if tasks that this program pickles can't be loaded in the run."""
        if (self.python, self.environment) != (of_run.python, of_run.environment):
            raise InvalidInput(
                f"the run's workers have Python {of_run.python} of {of_run.environment}, and this "
                f"program has Python {self.python} of {self.environment}; submit from the run's"
            )

    def take_up(self) -> None:
        """Make them this process's own; it stays where it is if this machine lacks `cwd`."""
        if Path(self.cwd).is_dir():
            os.chdir(self.cwd)
        self.import_from()

    def import_from(self) -> None:
        """Find modules where that program does, before this process's own places."""
        sys.path[:] = dict.fromkeys([*self.places, *sys.path])

    @property
    def places(self) -> list[str]:
        """Where this process finds the modules that the program has found.

        If this process is of another Python, as after `saturn resume --python`, it has packages of
        its own, and those of the program's Python are left out.
        """
        here = ".".join(map(str, sys.version_info[:2])), sys.prefix
        if here == (self.python, self.environment):
            return list(self.python_path)
        return [path for path in self.python_path if not _is_of_environment(Path(path))]


def _is_of_environment(path: Path) -> bool:
    """Whether a place belongs to a Python, as in `opening/other_python.rs`.

    Such places are in `lib/python3.12`, `lib/python312.zip`, or Debian's `dist-packages`.
    """
    return any(_OF_ENVIRONMENT.fullmatch(part) for part in path.parts)


def program_path() -> list[str]:
    """Where this program's own modules are found: `sys.path` without Python's and its packages'.

    For another machine, whose Python may be elsewhere.
    """
    inner = [Path(sys.prefix), Path(sys.base_prefix)]
    paths = [Path(path or Path.cwd()).absolute() for path in sys.path]
    return [str(path) for path in paths if not any(part in path.parents for part in inner)]
