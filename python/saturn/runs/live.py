"""A run in progress: its commands and status, and its result when it is over.

`Run` talks to the process that drives the run, whichever that is, over the socket in the run
directory. `StartedRun` is a run of this process; a thread that doesn't hold the interpreter's lock
drives it. When a command returns, it is in the run's journal.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import shlex
import shutil
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from saturn import library, native
from saturn.errors import (
    InvalidInput,
    Refused,
    RunFailed,
    RunInterrupted,
    RunOver,
    TasksFailed,
)
from saturn.notebook import view
from saturn.notebook.view import View
from saturn.runs import request, run_directory, stopping
from saturn.runs.profiles import Profile
from saturn.runs.request import CheckedSettings, Packed, Wishes
from saturn.runs.result import RunResult, strategies_by_task
from saturn.runs.status import Status
from saturn.tasks.surroundings import STARTED, Surroundings
from saturn.tasks.task import Task
from saturn.tasks.wishes import checked_deadline, checked_priority, checked_time, names_before
from saturn.tuning.tuner import Tuner
from saturn.tuning.watch import Watch

if TYPE_CHECKING:
    from saturn.cluster.cluster import Cluster
    from saturn.native import Exchange
    from saturn.tasks.wishes import Before

#: Seconds between two questions to another process whether its run is over.
_POLL_S = 0.2


class Run:
    """A run, from any process on its machine. `saturn.attach` makes it.

    Commands return when they are in the run's journal, and the run acts on them within a second.
    They raise `Refused`, with the reason and its code, if the run refuses them. They raise
    `RunOver` if the run has ended or no process drives it.
    """

    def __init__(self, run_dir: Path) -> None:
        """Make it for the directory of a run; `saturn.attach` finds that."""
        self._run_dir = run_dir
        #: Tasks that this object has submitted to the run, by name.
        self._packed: dict[str, Packed] = {}
        #: The directories of these tasks, relative to the run's.
        self._directories: dict[str, str] = {}
        #: Whether `wait` raises if tasks failed.
        self._raises = True

    @property
    def _resume_command(self) -> str:
        return f"saturn resume {shlex.quote(str(self._run_dir))}"

    @property
    def run_dir(self) -> Path:
        """The run directory."""
        return self._run_dir

    @property
    def is_over(self) -> bool:
        """Whether the run has ended, or no process drives it any more."""
        return not native.is_driven(self._run_dir)

    def submit(
        self,
        tasks: Task | Iterable[Task],
        *,
        after: Before | None = None,
        priority: int | None = None,
        deadline: float | None = None,
        release: float | None = None,
    ) -> None:
        """Add tasks to a run that is in progress: all of them, or none if one is refused.

        A run that was started without `keep_open` ends as soon as all its tasks have ended.

        The other arguments hold for each of the tasks, and replace the task's own (see `Task`). The
        tasks may train under the techniques with which the run was started.
        """
        wishes = Wishes.checked(after=after, priority=priority, deadline=deadline, release=release)
        workload = request.checked_tasks([tasks] if isinstance(tasks, Task) else tasks)
        self._check(workload)
        here, of_run = Surroundings.here(), Surroundings.read(self._run_dir / STARTED)
        if of_run is not None:
            here.refuse_other_python(of_run)
        # From elsewhere, the same code may read other files.
        is_elsewhere = of_run is not None and here.cwd != of_run.cwd
        packed = request.pack(workload, cwd=here.cwd if is_elsewhere else None)
        directories = run_directory.write_tasks(
            self._run_dir, workload, [each.pickle for each in packed], here
        )
        described = [
            self._described(each, directory, wishes)
            for each, directory in zip(packed, directories, strict=True)
        ]
        try:
            request.put_checkpoints(self._run_dir, packed, directories)
            self._command({"command": "submit", "tasks": described})
        except (InvalidInput, RunOver) as error:
            # The tasks were refused, so no journal names these directories.
            for directory in directories:
                shutil.rmtree(self._run_dir / directory, ignore_errors=True)
            if isinstance(error, RunOver):
                raise RunOver(
                    f"{error}. It takes no more tasks: start another run for them. A run that is "
                    "started with keep_open=True goes on until it is told to close"
                ) from None
            raise
        for each, directory in zip(packed, directories, strict=True):
            self._packed[each.task.name] = each
            self._directories[each.task.name] = directory

    def close(self) -> None:
        """Say that no more tasks will come: the run ends when all its tasks have."""
        self._command({"command": "close"})

    def cancel(self, name: str) -> None:
        """End a task that is no longer wanted, and the tasks that come after it."""
        self._command({"command": "cancel", "task": name})

    def pause(self, name: str) -> None:
        """Stop a task at a checkpoint until `unpause`; other tasks use its devices meanwhile."""
        self._command({"command": "pause", "task": name})

    def unpause(self, name: str) -> None:
        """Take up a paused task again, from its checkpoint."""
        self._command({"command": "unpause", "task": name})

    def priority(self, name: str, priority: int) -> None:
        """Give a task another priority (see `Task`)."""
        self._wish(name, priority=checked_priority(priority))

    def deadline(self, name: str, deadline: float | None) -> None:
        """Give a task another deadline, in seconds on the run's clock; None removes it."""
        checked = checked_deadline(deadline)
        self._wish(name, **({"no_deadline": True} if checked is None else {"deadline_s": checked}))

    def release(self, name: str, release: float) -> None:
        """Let a task train only from this time on the run's clock, in seconds; 0: from now."""
        self._wish(name, release_s=checked_time("release", release))

    def after(self, name: str, before: Before) -> None:
        """Have a task wait for these tasks, instead of those that it waited for before."""
        self._wish(name, after=names_before(before))

    def take_back(self, node: str, devices: Sequence[int] = ()) -> None:
        """Use devices again that were set aside: those of a node, by default all of them."""
        self._command({"command": "take_back", "node": node, "devices": list(devices)})

    def stop(self, *, at_once: bool = False) -> None:
        """Stop the run, at checkpoints or at once; `saturn resume` continues it."""
        self._command({"command": "stop", "at_once": at_once})

    def status(self) -> Status:
        """The state of the run and of each task; also works for a run that is over."""
        return Status(json.loads(native.status(self._run_dir)))

    def explain(self, name: str | None = None) -> dict[str, Any]:
        """Why a task waits, trains or ended; without a name, why the run does: codes, sentences."""
        explanation: dict[str, Any] = json.loads(native.explain(self._run_dir, name))
        return explanation

    def wait(self, timeout: float | None = None) -> RunResult:
        """Wait until the run is over, and return its result.

        Raises `TimeoutError` after `timeout` seconds (the run goes on), `TasksFailed` once
        everything has ended (its `result` has the other tasks; not with `raise_on_failure=False`),
        `RunInterrupted` if the run was stopped, and `RunFailed`.
        """
        until = None if timeout is None else time.monotonic() + timeout
        while not self.is_over:
            if until is not None and time.monotonic() >= until:
                raise self._timed_out(timeout)
            time.sleep(_POLL_S)
        return self._conclude(native.report(self._run_dir))

    def __repr__(self) -> str:
        """Show class and run directory."""
        return f"{type(self).__name__}({str(self._run_dir)!r})"

    def _command(self, command: dict[str, Any]) -> None:
        text = json.dumps({"version": 1, **command}, allow_nan=False)
        answer = native.ask(self._run_dir, text)
        if answer is None:
            raise RunOver(
                f"no process drives the run `{self._run_dir}`; `saturn status "
                f"{shlex.quote(str(self._run_dir))}` tells where the run stands"
            )
        reply = json.loads(answer)
        if reply["ok"]:
            return
        if reply.get("code") == "run_ended":
            raise RunOver(reply["error"])
        raise Refused(reply["error"], reply.get("code"))

    def _wish(self, name: str, **wishes: Any) -> None:
        self._command({"command": "wish", "task": name, **wishes})

    def _check(self, workload: Sequence[Task]) -> None:
        """Refuse impossible tasks, as far as known: another process knows the run's techniques."""
        if any(task.techniques or task.knobs for task in workload):
            request.check_techniques(workload, library.select(None))

    def _described(self, packed: Packed, directory: str, wishes: Wishes) -> dict[str, Any]:
        # What the run may measure is not known here, so the run measures everything it needs.
        return packed.described(directory, Profile([]), [], wishes)

    def _timed_out(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"the run `{self._run_dir}` is not over after {timeout} s; it goes on")

    def _conclude(self, text: str) -> RunResult:
        """Store the strategies in the tasks; returns the result, or raises if the run failed."""
        report = json.loads(text)
        result = RunResult.from_report(report, self._run_dir)
        strategies = strategies_by_task(report)
        for outcome, found in zip(result.tasks, strategies, strict=True):
            packed = self._packed.get(outcome.name)
            if packed is None:
                continue
            if found:
                packed.task.strategies = found
                packed.task._measured_as = packed.key
            packed.task.selected_strategy = outcome.strategy or packed.task.selected_strategy
        command = self._resume_command
        if report["status"] == "interrupted":
            raise RunInterrupted(
                f"stopped at checkpoints; to go on: {command}",
                run_dir=str(self._run_dir),
                resume_command=command,
            )
        if report["status"] != "complete":
            raise RunFailed(
                f"the process that drove the run `{self._run_dir}` is gone; to go on: {command}"
            )
        failed = [task for task in result.tasks if task.status == "failed"]
        if failed and self._raises:
            lines = [f"task `{task.name}`: {task.error}" for task in failed]
            raise TasksFailed(
                f"{len(failed)} of {len(result.tasks)} tasks failed\n" + "\n".join(lines), result
            )
        return result


class StartedRun(Run):
    """A run that this process drives. `saturn.start` makes it.

    As a context manager, it closes the run and waits for it. If the block raises, the run is first
    stopped at checkpoints. If a program ends without waiting, its runs are stopped at checkpoints.
    """

    def __init__(
        self,
        run_dir: Path,
        packed: Sequence[Packed],
        settings: CheckedSettings | None,
        reused: Profile,
        directories: dict[str, str],
        tuner: Tuner | None = None,
        cluster: Cluster | None = None,
    ) -> None:
        """Make it; `_begin` begins the run. `settings` is None for a resumed run."""
        super().__init__(run_dir)
        self._directories = directories
        #: The view that shows the run in a notebook.
        self._view: View | None = None
        self._packed = {each.task.name: each for each in packed}
        self._settings = settings
        self._reused = reused
        self._cluster = cluster
        self._interrupts = native.interrupts()
        self._over = threading.Event()
        #: The run's report, once it is over.
        self._report = ""
        self._error: BaseException | None = None
        self._process = os.getpid()
        self._watch = None if tuner is None else Watch(tuner, self)

    @property
    def _resume_command(self) -> str:
        where = "" if self._cluster is None else f" --cluster {self._cluster.address}"
        return super()._resume_command + where

    @property
    def _suggests(self) -> bool:
        """Whether a study suggests its tasks, so that their names don't show their parameters."""
        return self._watch is not None and self._watch.tuner.suggests

    @property
    def is_over(self) -> bool:
        """Whether the run has ended."""
        return self._over.is_set()

    def wait(self, timeout: float | None = None) -> RunResult:
        """Wait until the run is over, and return its result.

        On the main thread, Ctrl-C, SIGTERM and SIGHUP stop the run meanwhile. The first stops it at
        checkpoints, the second at once, the third without waiting for processes that can't be
        killed.

        Raises `TimeoutError` after `timeout` seconds (the run goes on), `TasksFailed` once
        everything has ended (its `result` has the other tasks; not with `raise_on_failure=False`),
        `RunInterrupted` if the run was stopped, and `RunFailed`.
        """
        if not stopping.wait(self._over, self._interrupts.press, timeout):
            raise self._timed_out(timeout)
        if self._view is not None:
            self._view.wait()
        if self._error is not None:
            raise self._error
        if self._watch is not None and self._watch.cause is not None:
            raise self._watch.cause
        return self._conclude(self._report)

    def __enter__(self) -> StartedRun:
        """Enter the block in which tasks are submitted."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the run and wait for it; if the block raised, stop it at checkpoints."""
        if kind is not None:
            self._stop_and_wait()
            return
        if not self.is_over:
            with contextlib.suppress(RunOver):  # the run may have ended since
                self.close()
        self.wait()

    def _begin(self, drive: Callable[[Any, Exchange | None], str], write: Any) -> None:
        """Begin to drive the run; returns once it takes commands, or raises why it is refused.

        `drive` gets a function for the run's output: `write`, or in a notebook the view's; with
        None, nothing is shown. It also gets the exchange with the agents of the run's cluster.
        """
        # For a resumed run, the tasks' directories are not known here, so it is shown as lines.
        display = view.display_of_kernel() if write is not None and self._directories else None
        if display is not None:
            self._view = View(self._run_dir, self._directories, write)
            write = self._view.write
        threading.Thread(
            target=self._drive,
            args=(lambda exchange: drive(write, exchange),),
            name=f"saturn {self._run_dir.name}",
            daemon=True,
        ).start()
        try:
            while not self._over.wait(0.01) and not native.is_driven(self._run_dir):
                pass
        except BaseException:
            self._stop_and_wait()
            raise
        if self._error is not None:
            raise self._error
        if self._view is not None:
            self._view.begin(display)
        if not self.is_over:
            _unfinished.add(self)

    def _drive(self, drive: Callable[[Exchange | None], str]) -> None:
        cluster = self._cluster
        if self._watch is not None:
            self._watch.begin()
        try:
            press = self._interrupts.press
            self._report = drive(None if cluster is None else cluster.serve(self._run_dir, press))
        except BaseException as error:
            self._error = error
        finally:
            try:
                if self._view is not None:
                    self._view.over()
                if self._watch is not None:
                    self._watch.end()
                if cluster is not None:
                    cluster.close()
            finally:
                self._over.set()

    def _check(self, workload: Sequence[Task]) -> None:
        if self._settings is None:
            super()._check(workload)
        else:
            request.check_techniques(workload, self._settings.entries)

    def _described(self, packed: Packed, directory: str, wishes: Wishes) -> dict[str, Any]:
        entries = [] if self._settings is None else self._settings.entries
        goal = {} if self._watch is None else self._watch.tuner.goal
        return goal | packed.described(directory, self._reused, entries, wishes)

    def _stop_and_wait(self) -> None:
        if self._process == os.getpid() and not self.is_over:
            self._interrupts.press()
            stopping.wait(self._over, self._interrupts.press, None)


#: Runs of this process that may not be over yet.
_unfinished: weakref.WeakSet[StartedRun] = weakref.WeakSet()


@atexit.register
def _stop_unfinished() -> None:
    """Stop runs at checkpoints for which the ending program has not waited."""
    for run in list(_unfinished):
        if not run.is_over and run._process == os.getpid():
            command = run._resume_command
            sys.stderr.write(
                "the program ends and has not waited for its run, which stops at checkpoints; to "
                f"go on: {command}\n"
            )
            run._stop_and_wait()
