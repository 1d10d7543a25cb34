"""Wait for some tasks of a run that goes on after them, such as those submitted to a pool.

The process that drives the run may end meanwhile, and another may take the run up: the wait goes
on. It sends no commands, so whoever ends it leaves the tasks as they are.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from saturn import native
from saturn.errors import InvalidInput, RunFailed, SaturnError, TasksFailed, WaitingEnded
from saturn.runs.result import RunResult

if TYPE_CHECKING:
    from saturn.runs.live import Run
    from saturn.runs.status import Status

#: Seconds between two questions where the tasks stand: at first, and at most.
_FIRST_POLL_S, _MOST_POLL_S = 0.2, 5.0
#: Each pause is longer than the pause before by this factor, until a task starts or ends.
_SLOWER = 1.2
#: After so many seconds a line comes even if no task has started or ended.
_LINE_AT_LEAST_EVERY_S = 30.0
NOT_DRIVEN = "no process drives the run, or it does not answer; waiting until it goes on"
DRIVEN_AGAIN = "a process drives the run again"
#: The stages of a task that has ended.
_ENDED = frozenset({"done", "diverged", "failed", "cancelled", "stopped"})


def wait_for(
    run: Run,
    names: Mapping[str, str],
    *,
    timeout: float | None = None,
    tell: Callable[[str], None] | None = None,
) -> RunResult:
    """Wait until tasks of a run have ended; returns their result.

    Args:
        run: the run.
        names: the tasks, by their names in the run; the values are their names in the result.
        timeout: the most seconds to wait; None: as long as it takes.
        tell: gets lines for people: which tasks have ended, and when the others are expected to.

    Raises `InvalidInput` if the run has no such task, `TimeoutError`, and `TasksFailed` if a task
    failed (not with `raise_on_failure=False`).
    """
    until = None if timeout is None else time.monotonic() + timeout
    teller = _Teller(names, tell)
    poll_s = _FIRST_POLL_S
    first = run.status()
    missing = names.keys() - {task["name"] for task in first["tasks"]}
    if missing:
        raise InvalidInput(f"the run {run.run_dir} has no task `{min(missing)}`")
    status: Status | None = first
    while True:
        has_changed = teller.look(status)
        if status is not None and teller.have_all_ended:
            return _concluded(run, names, status)
        if until is not None and time.monotonic() >= until:
            num_open = len(names) - teller.num_ended
            raise TimeoutError(
                f"{num_open} of {len(names)} tasks have not ended after {timeout} s; they go on"
            )
        poll_s = _FIRST_POLL_S if has_changed else min(poll_s * _SLOWER, _MOST_POLL_S)
        left_s = poll_s if until is None else max(0.0, until - time.monotonic())
        time.sleep(min(poll_s, left_s))
        status = status_of(run)


def status_of(run: Run) -> Status | None:
    """Where the run stands; None for another person's pool while nobody drives it or answers."""
    try:
        return run.status()
    except RunFailed:
        return None
    except SaturnError:
        if not run.is_over:
            raise
        return None


def is_driven_now(status: Status | None) -> bool:
    """Whether a process drives the run, by what `status_of` found."""
    return status is not None and status["status"] not in ("interrupted", "died")


def wait_or_leave(
    run: Run,
    names: Mapping[str, str],
    *,
    status_command: str,
    cancel_command: str | None,
    tell: Callable[[str], None],
) -> RunResult:
    """As `wait_for`, but Ctrl-C raises `WaitingEnded`, and `tell` says how to go on.

    `status_command` tells where the tasks stand, and `cancel_command` ends them all, if one can.
    """
    try:
        return wait_for(run, names, tell=tell)
    except KeyboardInterrupt:
        message = f"no longer waiting, and the tasks go on: {status_command}"
        if cancel_command is not None:
            message += f"; to end them: {cancel_command}"
        tell(message)
        raise WaitingEnded(
            message, run_dir=str(run.run_dir), resume_command=status_command
        ) from None


class _Teller:
    """Tells people how the tasks get on while a program waits for them."""

    def __init__(self, names: Mapping[str, str], tell: Callable[[str], None] | None) -> None:
        self._names = names
        self._tell = tell or (lambda _: None)
        self._stages: dict[str, str] = {}
        self._told_at_s = -math.inf
        self._is_driven = True

    @property
    def num_ended(self) -> int:
        return sum(stage in _ENDED for stage in self._stages.values())

    @property
    def have_all_ended(self) -> bool:
        return self.num_ended == len(self._names)

    def look(self, status: Status | None) -> bool:
        """Tell what has changed since the last look; whether a task has started or ended."""
        is_driven = is_driven_now(status)
        if is_driven != self._is_driven:
            self._is_driven = is_driven
            self._tell(DRIVEN_AGAIN if is_driven else NOT_DRIVEN)
        if status is None:
            return False
        tasks = [task for task in status["tasks"] if task["name"] in self._names]
        before, self._stages = self._stages, {task["name"]: task["stage"] for task in tasks}
        for task in tasks:
            if task["stage"] in _ENDED and before.get(task["name"]) not in _ENDED:
                self._tell(_end_of(task))
        has_changed = any(
            stage != before.get(name) and stage in {*_ENDED, "running"}
            for name, stage in self._stages.items()
        )
        is_due = time.monotonic() - self._told_at_s >= _LINE_AT_LEAST_EVERY_S
        if (has_changed or is_due) and is_driven and not self.have_all_ended:
            self._tell(self._progress(status, tasks))
            self._told_at_s = time.monotonic()
        return has_changed

    def _progress(self, status: Status, tasks: list[dict[str, Any]]) -> str:
        training = sum(stage == "running" for stage in self._stages.values())
        ends = [task["expected_end_s"] for task in tasks if task["stage"] not in _ENDED]
        left = "the end is not known yet"
        if None not in ends:
            left = f"about {native.duration(max(0.0, max(ends) - status['now_s']))} left"
        words = f"{self.num_ended} of {len(self._names)} tasks have ended, {training} train"
        return f"{words}; {left}"


def _end_of(task: Mapping[str, Any]) -> str:
    if task["error"] is not None:
        return f"{task['name']}: {task['stage']}: {task['error']}"
    loss = "" if task["loss"] is None else f", loss {float(task['loss']):.4g}"
    return f"{task['name']}: {task['stage']}, {task['step']} steps{loss}"


def _concluded(run: Run, names: Mapping[str, str], status: Status) -> RunResult:
    parameters = {name: packed.task.parameters for name, packed in run._packed.items()}
    result = RunResult.from_status(status, names, parameters, run.run_dir)
    failed = [task for task in result.tasks if task.status == "failed"]
    if failed and run._raises:
        how_many = f"{len(failed)} of {len(result.tasks)} tasks failed"
        errors = "\n".join(f"task `{task.name}`: {task.error}" for task in failed)
        raise TasksFailed(f"{how_many}\n{errors}", result)
    return result
