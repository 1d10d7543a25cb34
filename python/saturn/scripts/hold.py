"""The task of a held place: it holds its devices for a person for some time, and trains nothing.

Each rank runs this module, with the place's directory as its last argument. It writes down what it
may use, and reports a step a second. It ends with the last step, when Saturn asks it to, or once
the person's process is gone.

The person's process (`saturn.runs.held_place`) and rank 0 see by locks whether the other is there:
each keeps a file locked for as long as it lives, and the kernel ends the lock with the process.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from saturn.scripts.reporting import report

#: Locked by the person's process while the person wants the place.
PERSON = "person"
#: Locked by rank 0 while the place is held.
HELD = "held"
#: Has the number of steps: seconds for which the place is held.
STEPS = "steps"


@dataclass(frozen=True)
class Part:
    """What one rank of a held place may use."""

    cores: list[int]
    #: As in `CUDA_VISIBLE_DEVICES`: empty on CPU slots, None if all GPUs may be used.
    gpus: str | None
    #: When the place began, seconds of this machine's monotonic clock.
    began_s: float
    #: The launch that holds the place: if the launch fails, another follows.
    launch: str

    @classmethod
    def of_this_process(cls, began_s: float) -> Part:
        """What this process may use."""
        cores = sorted(os.sched_getaffinity(0))
        return cls(cores, os.environ.get("CUDA_VISIBLE_DEVICES"), began_s, _launch())


def lock(path: Path) -> IO[str]:
    """Keep a file locked until the returned file is closed, or this process ends."""
    file = path.open("w")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


def is_locked(path: Path) -> bool:
    """Whether a process keeps the file locked."""
    try:
        with path.open() as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False


def parts(directory: Path, num_ranks: int) -> list[Part] | None:
    """What the ranks may use; None until the place is held and each rank has written its part."""
    try:
        files = [_part(directory, rank).read_text() for rank in range(num_ranks)]
        launch = (directory / HELD).read_text()
    except FileNotFoundError:
        return None
    found = [Part(**json.loads(text)) for text in files]
    is_held = is_locked(directory / HELD) and all(part.launch == launch for part in found)
    return found if is_held else None


def main() -> None:
    """Hold the place."""
    directory = Path(sys.argv[-1])
    is_first = os.environ.get("RANK", "0") == "0"
    try:
        held = lock(directory / HELD) if is_first else None
        with contextlib.nullcontext() if held is None else held:
            if held is not None:
                held.write(_launch())
                held.flush()
            _hold(directory)
    except FileNotFoundError:
        # The person has left, and has taken the directory along, before the task had its turn.
        report(1, total_steps=1)
    if is_first and not is_locked(directory / PERSON):
        shutil.rmtree(directory, ignore_errors=True)


def _hold(directory: Path) -> None:
    steps = int((directory / STEPS).read_text())
    began_s = time.monotonic()
    step = 0
    while step < steps:
        time.sleep(max(0.0, began_s + step + 1 - time.monotonic()))
        is_first = step == 0
        step = min(steps, max(step + 1, int(time.monotonic() - began_s)))
        if is_first:
            # By now the rank is pinned to its cores.
            _write(
                _part(directory, int(os.environ.get("RANK", "0"))), Part.of_this_process(began_s)
            )
        is_wanted = is_locked(directory / PERSON)
        # A report of a last step before the planned last step says that the task is done.
        if report(step, total_steps=None if is_wanted else step) or not is_wanted:
            return


def _launch() -> str:
    """The name of this launch."""
    return os.environ.get("TORCHELASTIC_RUN_ID", "")


def _part(directory: Path, rank: int) -> Path:
    return directory / f"rank-{rank}.json"


def _write(path: Path, part: Part) -> None:
    scratch = path.with_suffix(".new")
    scratch.write_text(json.dumps(asdict(part)))
    scratch.replace(path)


if __name__ == "__main__":
    main()
