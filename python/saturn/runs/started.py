"""A run of this process: a thread that doesn't hold the interpreter's lock drives it."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from saturn import native
from saturn.errors import RunOver
from saturn.notebook import view
from saturn.notebook.view import View
from saturn.runs import request, stopping
from saturn.runs.live import Run
from saturn.runs.profiles import Profile
from saturn.runs.request import Packed, Wishes
from saturn.runs.result import RunResult
from saturn.runs.settings import CheckedSettings
from saturn.tasks.task import Task
from saturn.tuning.scope import Scope
from saturn.tuning.tuner import Tuner
from saturn.tuning.watch import Watch

if TYPE_CHECKING:
    from saturn.cluster.cluster import Cluster
    from saturn.native import Exchange


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
        self._watch = None if tuner is None else Watch(tuner, Scope(self))

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
        self._is_told = write is not None
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
            # A run that waits for devices is ended by each signal that would end this program.
            with stopping.as_interrupts():
                while not self._over.wait(0.01) and not native.is_driven(self._run_dir):
                    pass
        except BaseException as error:
            self._stop_and_wait()
            if isinstance(error, KeyboardInterrupt) and self._report:
                self._conclude(self._report)  # raises `RunInterrupted`, as in `wait`
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
        return self._goal | packed.described(directory, self._reused, entries, wishes)

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
