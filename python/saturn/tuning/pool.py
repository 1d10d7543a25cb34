"""A pool, from any process on its machine: a run that takes sweeps with a stopper or a study.

It only writes such a sweep; a process of the sweep's own steers it (`tuning.steered`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn.errors import InvalidInput, Refused
from saturn.runs import request, run_directory
from saturn.runs.live import Run
from saturn.stoppers.given import stoppers_of, with_metrics
from saturn.tasks.task import Task
from saturn.tuning import steered
from saturn.tuning.steered import About
from saturn.tuning.tuner import Stopping

if TYPE_CHECKING:
    from saturn.tasks.due import Due
    from saturn.tasks.wishes import Before
    from saturn.tuning.tuner import Tuner


class Pool(Run):
    """The pool that `saturn serve` drives. `saturn.connect` makes it, and `saturn.attach`.

    It may be another person's, after `saturn join`. That pool refuses commands about other people's
    tasks.
    """

    def submit(
        self,
        tasks: Task | Iterable[Task],
        *,
        after: Before | None = None,
        priority: int | None = None,
        deadline: float | None = None,
        release: float | None = None,
        due: Due | None = None,
        stopper: Any = None,
        name: str | None = None,
    ) -> dict[str, Any] | None:
        """Add tasks to the pool: all of them, or none if one is refused.

        `stopper` ends or holds some of these tasks, as in `saturn.orchestrate`. A stopper sees
        these tasks alone, and its seconds count from now. `name` is the common name of the tasks
        with this stopper: `cancel(name)` ends them all. The other arguments, and the value that is
        returned, are those of `Run.submit`.
        """
        wishes: dict[str, Any] = {
            "after": after,
            "priority": priority,
            "deadline": deadline,
            "release": release,
            "due": due,
        }
        given = [tasks] if isinstance(tasks, Task) else list(tasks)
        # With tasks for the rests of scripts; they are added anew where the tasks are submitted.
        workload = request.checked_tasks(given)
        if stopper is None:
            if name is not None:
                raise InvalidInput(
                    f"name is {name!r}, but there is no stopper: tasks without a stopper have only "
                    "names of their own"
                )
            with contextlib.suppress(InvalidInput):  # of an older version, which has no sweeps
                self._fit()
            steered.check_names(self._run_dir, (task.name for task in workload))
            return super().submit(given, **wishes)
        if name is None:
            raise InvalidInput("tasks with a stopper need a name: submit(…, name='lr')")
        if not isinstance(name, str):
            raise TypeError(f"name is {name!r}; it must be a string, such as 'lr'")
        reports = [request.reports_of(task) for task in workload]
        tuner = Stopping(with_metrics(stoppers_of(stopper), reports))
        return self._submit_steered(name, given, [task.name for task in workload], tuner, wishes)

    def cancel(self, name: str) -> None:
        """Cancel a task and its successors, or the sweep of that name with all its tasks."""
        with contextlib.suppress(InvalidInput):
            self._fit()
        sweep = steered.named(self._run_dir, name)
        # A sweep's process ends with its pool. Without a driver, nobody would cancel anything.
        if sweep is None or sweep.has_ended or self.is_over:
            super().cancel(name)
        else:
            sweep.cancel()

    def _fit(self) -> None:
        """See that the sweeps in the directory are those of the present pool."""
        if run_directory.is_joined(self._run_dir):
            steered.fit_to_pool(self._run_dir)

    def _submit_steered(
        self,
        name: str,
        tasks: list[Task],
        names: list[str],
        tuner: Tuner,
        wishes: dict[str, Any],
    ) -> dict[str, Any] | None:
        """Write the sweep, and then submit its tasks.

        `names` are the names of all tasks: of `tasks`, and of the rests of scripts among them.

        If the tasks can't be written or are refused, the sweep is removed and its name is free. If
        this process dies before it could submit them, the sweep's process finds no tasks and ends.
        If the pool's answer is lost, the sweep stays: the pool may have its tasks.
        """
        self._write(name, tuner, names)
        directory = self._run_dir / steered.DIRECTORY / name
        run = Run(self._run_dir)
        run._goal = tuner.goal
        in_time = wishes["due"] is not None
        try:
            prepared = run._prepared(tasks, run._wishes(**wishes), in_time=in_time)
        except BaseException:
            steered.withdraw(directory)
            raise
        try:
            run._send(prepared)
        except (InvalidInput, TypeError, ValueError):
            steered.withdraw(directory)
            raise
        self._packed |= run._packed
        self._directories |= run._directories
        return prepared.preview

    def _submit_search(self, name: str, tuner: Tuner, *, priority: int | None) -> None:
        """Write a search. Its tuner has suggested the first task, which its process submits."""
        if self.status()["is_closed"]:
            raise InvalidInput(
                "the pool is closed, so a search would suggest no tasks. Once its tasks have "
                "ended, saturn serve begins another pool"
            )
        self._write(name, tuner, None, priority)

    def _write(
        self, name: str, tuner: Tuner, tasks: list[str] | None, priority: int | None = None
    ) -> None:
        self._fit()
        # Its tasks would be named as those of the other, which says less.
        steered.check_names(self._run_dir, [name])
        status = self.status()
        for task in (one["name"] for one in status["tasks"]):
            if task == name or (tasks is None and steered.search_of(task) == name):
                raise Refused(f"the pool has a task `{task}` already", "name_taken")
        steered.write(self._run_dir, name, tuner, About(tasks, status["now_s"], priority))


def run_or_pool(run_dir: Path) -> Run:
    """The run in this directory; a `Pool` if the run takes sweeps with a stopper."""
    is_pool = steered.takes_steered(run_dir) or run_directory.is_joined(run_dir)
    return Pool(run_dir) if is_pool else Run(run_dir)
