"""The pool of another person on this machine, once this person has joined it.

The other person shares a pool by `saturn serve --share DOOR`. Whoever joins it has a directory of
that pool in `SATURN_HOME/joined`, which others can't read. It is like the directory of a run, but
has no journal: the other person's process keeps that.

- `tasks`: this person's tasks, with their logs, checkpoints and metrics.
- `control.sock` leads to the pool's door.
- `steered`: this person's sweeps with a stopper or a study (`tuning.steered`).
- `agent.json` is what the agent was started with.

The *agent* is a process of this person's own. It starts the processes of this person's tasks when
the pool says so, and waits while nobody drives the pool (`saturn-runtime`: `outliving/guest.rs`).
It also keeps a process for each of this person's steered sweeps (`tuning.supervise`).
`SATURN_HOME/joined/pool` leads to the directory of the pool that was joined last.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saturn import library, native
from saturn.errors import InvalidInput, RunFailed, RunOver
from saturn.library import Entry
from saturn.plain import durable
from saturn.plain.home import home
from saturn.runs import request, settings
from saturn.tasks.surroundings import STARTED, Surroundings

#: For how many seconds this person's tasks train on if nobody drives the pool.
_OUTLIVE_S = 900.0
#: Seconds between two looks whether an agent has ended.
_POLL_S = 0.1
#: What the agent was started with.
_SETUP = "agent.json"
#: A file that has the agent stop all ranks at checkpoints, and end.
_LEAVE = "leave"


@dataclass(frozen=True)
class Joined:
    """What came of joining a pool."""

    directory: Path
    #: Whether a process drives the pool now.
    is_driven: bool


def current() -> Path | None:
    """The directory of the pool that was joined last; None after `leave`, and without any."""
    link = _link()
    return link.resolve() if link.is_symlink() and link.exists() else None


def join(door: str | os.PathLike[str], tell: Callable[[str], None] = lambda _: None) -> Joined:
    """Join the pool with this door, and start this person's agent there if it is not there yet.

    After `leave`, waits until the agent has stopped this person's tasks; `tell` gets a line that
    says so.

    Raises `InvalidInput` if there is no such door, or it is this person's own.
    """
    door = Path(door).absolute()
    try:
        host = door.stat().st_uid
        is_door = (door / "agents").is_dir()
    except OSError as error:
        raise InvalidInput(f"{door} is not the door of a pool: {error.strerror}") from None
    if not is_door:
        raise InvalidInput(
            f"{door} is not the door of a pool; the person who drives the pool makes one by: "
            f"saturn serve --share {door}"
        )
    if host == os.geteuid():
        raise InvalidInput(f"{door} is the door of your own pool; submit to it: saturn submit")
    directory = home() / "joined" / "_".join(door.parts[1:])
    durable.make_directory(directory.parent)
    with contextlib.suppress(FileExistsError):
        directory.mkdir(mode=0o700)
    if (directory / _LEAVE).exists() and _has_agent(directory):
        # An agent that leaves starts no tasks any more.
        tell("you have left this pool, and your tasks there still stop at checkpoints: waiting")
        while _has_agent(directory):
            time.sleep(_POLL_S)
    (directory / _LEAVE).unlink(missing_ok=True)
    _lead(directory / "control.sock", door / "control.sock")
    _start_agent(door, directory)
    _lead(_link(), directory)
    durable.sync(directory.parent)
    return Joined(directory, native.is_driven(directory))


def leave() -> Path:
    """Leave the pool that was joined last: this person's agent stops its tasks at checkpoints.

    The tasks stay in the pool, and go on if this person joins it again. Returns the directory.

    Raises `InvalidInput` if no pool was joined.
    """
    directory = current()
    if directory is None:
        raise InvalidInput("you have not joined a pool")
    (directory / _LEAVE).touch()
    _link().unlink()
    return directory


def is_driven(directory: Path) -> bool:
    """Whether a process drives the pool of this directory, and this person has not left it."""
    return native.is_driven(directory) and not (directory / _LEAVE).exists()


def reached() -> Path | None:
    """The directory of the pool that was joined last; None if this person has joined none.

    Starts this person's agent again if it has ended, as after a restart of the machine.

    Raises `RunOver` if no process drives the pool.
    """
    directory = current()
    if directory is None:
        return None
    door = (directory / "control.sock").readlink().parent
    _start_agent(door, directory)
    if not native.is_driven(directory):
        raise RunOver(
            f"no process drives the pool at {door}; the person whose it is starts it: saturn serve"
        )
    return directory


def _link() -> Path:
    return home() / "joined" / "pool"


def _lead(link: Path, to: Path) -> None:
    """Make a link that leads there, whatever was in its place."""
    fresh = link.with_name(f".{link.name}-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        fresh.unlink()
    fresh.symlink_to(to)
    fresh.replace(link)


def _has_agent(directory: Path) -> bool:
    """Whether this person's agent is there: it holds a lock for as long as it lives."""
    try:
        with (directory / "agent.lock").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def _start_agent(door: Path, directory: Path) -> None:
    """Start this person's agent at a door; an agent that is there already stays."""
    if _has_agent(directory):
        return
    setup = json.dumps(_setup(door, directory, request.with_scripts(library.select(None))))
    with (directory / "agent.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "saturn.runs.agent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
        )
    with process:
        answer, _ = process.communicate((setup + "\n").encode())
    try:
        said = json.loads(answer)
    except ValueError:
        raise RunFailed(f"your agent did not start: see {directory / 'agent.log'}") from None
    if isinstance(said, dict):
        raise RunFailed(f"your agent did not start: {said['failed']}")
    if said == "ready":
        (directory / _SETUP).write_text(setup)
        (directory / STARTED).write_bytes(Surroundings.here().dumps())


def _run_id(directory: Path) -> str:
    """The name by which an agent finds processes of an earlier agent that was killed."""
    try:
        before: str = json.loads((directory / _SETUP).read_bytes())["settings"]["run_id"]
    except FileNotFoundError:
        return secrets.token_hex(16)
    return before


def _setup(door: Path, directory: Path, entries: Iterable[Entry]) -> dict[str, Any]:
    """What the agent is told (`saturn-runtime`: `outliving/messages.rs`, `GuestSetup`)."""
    return {
        "door": str(door),
        "directory": str(directory),
        "settings": {
            "python": sys.executable,
            "python_path": settings.import_places(),
            "cwd": str(Path.cwd()),
            "preload": [],
            "devices": None,
            "run_id": _run_id(directory),
            "outlives_s": _OUTLIVE_S,
        },
        # Another person's process names techniques, and says nothing of where they are.
        "techniques": [
            {"name": one.name, "level": one.level, "import": one.import_path, "pickle": None}
            for one in entries
            if one.import_path is not None
        ],
    }
