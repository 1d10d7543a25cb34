"""The process of one steered sweep: `python -m saturn.tuning.steer RUN_DIR NAME`.

It ends when nothing is left to decide, when the sweep is cancelled, and when nobody drives the pool
any more; `tuning.supervise` starts it again with the pool. Everything that it knows is in the
pool's journal, in the tasks' files and in `tuner.pkl`, so it may die at any moment.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import sys
import time
import traceback
from pathlib import Path

from saturn.errors import InvalidInput
from saturn.tasks.surroundings import SUBMITTED, Surroundings
from saturn.tuning import keeping
from saturn.tuning.steered import SteeredSweep
from saturn.tuning.watch import Watch

#: Seconds between two looks whether to end.
_LOOK_S = 0.1
#: Seconds between two looks at the tasks of a sweep whose tuner has failed.
_LOOK_AT_TASKS_S = 5.0
#: Seconds that a tuner may take to end. This process must not outlive its pool for a tuner that
#: hangs.
_TO_END_S = 30.0
#: Seconds after which a sweep none of whose tasks were ever submitted is over.
_NEVER_CAME_S = 600.0


def main(run_dir: Path, name: str) -> None:
    """Steer the sweep until it is over or the pool stops."""
    sweep = SteeredSweep(run_dir, name)
    # The process of an earlier pool may still be about to end.
    lock = os.open(sweep.directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(lock, fcntl.LOCK_EX)
    if sweep.has_ended or sweep.is_withdrawn:
        return  # an earlier process has seen to it
    if sweep.has_given_up:
        _conclude(sweep)
        return
    surroundings = Surroundings.read(sweep.directory / SUBMITTED)
    if surroundings is not None:
        surroundings.take_up()
    try:
        tuner = keeping.read(sweep.directory)
        assert tuner is not None, "it is written before the sweep is"
        tuner.check()
    except Exception as error:
        _release(sweep, error)
        raise
    watch = Watch(tuner, sweep)
    watch.begin()
    began = time.monotonic()
    is_over = False
    while not (is_over or sweep.is_withdrawn or watch.is_cut_off) and sweep.is_driven:
        time.sleep(_LOOK_S)
        has_none = not watch.num_tasks and time.monotonic() - began > _NEVER_CAME_S
        is_over = watch.is_finished or watch.has_given_up or sweep.is_cancelled or has_none
    if watch.has_given_up:
        sweep.mark_given_up()
        is_over = _stand_by(sweep)
    if sweep.is_cancelled:
        _cancel(sweep)  # at once, even if the tuner hangs
    watch.end(within_s=_TO_END_S)
    if sweep.is_cancelled:
        _cancel(sweep)  # what the tuner has submitted since
    if is_over:
        sweep.mark_over()


def _cancel(sweep: SteeredSweep) -> None:
    """Cancel all tasks of the sweep that have not ended."""
    for task in _open_tasks(sweep):
        with contextlib.suppress(InvalidInput):  # it has ended since
            sweep.run.cancel(task)


def _release(sweep: SteeredSweep, error: Exception) -> None:
    """Without its tuner, have all tasks of the sweep train to their ends."""
    text = f"the tuner of the sweep `{sweep.name}` can't be loaded, so it decides nothing: {error}"
    reason = "nothing holds it any more"
    with contextlib.suppress(InvalidInput):  # the pool has ended
        sweep.note(text)
        judgements = [
            {"task": task, "step": step, "ruling": "go_on", "reason": reason}
            for task, step in _open_tasks(sweep).items()
        ]
        sweep.run._command({"command": "judge", "judgements": judgements})
    _conclude(sweep)


def _conclude(sweep: SteeredSweep) -> None:
    """Without a tuner, wait until the sweep is over, or the pool stops."""
    is_over = _stand_by(sweep)
    if sweep.is_cancelled:
        _cancel(sweep)
    if is_over:
        sweep.mark_over()


def _stand_by(sweep: SteeredSweep) -> bool:
    """Without a tuner, wait until the tasks have ended or somebody cancels the sweep.

    Returns False if the pool stopped before.
    """
    looked_s = -math.inf
    while sweep.is_driven:
        if sweep.is_cancelled:
            return True
        if time.monotonic() - looked_s > _LOOK_AT_TASKS_S:
            if not _open_tasks(sweep):
                return True
            looked_s = time.monotonic()
        time.sleep(_LOOK_S)
    return False


def _open_tasks(sweep: SteeredSweep) -> dict[str, int]:
    """The tasks of the sweep that have not ended, with the steps that each has trained."""
    tasks = [task for task in sweep.run.status()["tasks"] if sweep.is_own(task)]
    return {task["name"]: task["step"] for task in tasks if task["ended_s"] is None}


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]), sys.argv[2])
    except Exception:
        traceback.print_exc()
        sys.exit(1)
