"""A run in progress: its commands and status, and its result when it is over.

`Run` talks to the process that drives the run, whichever that is, over the socket in the run
directory. When a command returns, it is in the run's journal. A run of this process: `started`.
"""

from __future__ import annotations

import json
import shlex
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
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
from saturn.runs import request, run_directory
from saturn.runs.profiles import Profile
from saturn.runs.request import Packed, Wishes
from saturn.runs.result import RunResult, TaskResult, strategies_by_task
from saturn.runs.status import Status
from saturn.runs.waiting import wait_for
from saturn.tasks.due import Due, seconds_until
from saturn.tasks.surroundings import STARTED, Surroundings
from saturn.tasks.task import Task
from saturn.tasks.wishes import checked_deadline, checked_priority, checked_time, names_before
from saturn.tuning import keeping

if TYPE_CHECKING:
    from saturn.tasks.wishes import Before

#: Seconds between two questions to another process whether its run is over.
_POLL_S = 0.2
#: At most this many tasks that failed are named, once their errors have been shown.
_NAMED = 5


@dataclass
class _Prepared:
    """Tasks whose directories are written, and that are not submitted yet."""

    packed: list[Packed]
    #: The directory of each, relative to the run's.
    directories: list[str]
    #: What the run is told of each.
    described: list[dict[str, Any]]
    #: What they would do, if that was asked.
    preview: dict[str, Any] | None


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
        #: Whether this object has shown the run's output, which has each error in full.
        self._is_told = False
        #: The metric and mode of tasks that this object submits, for tasks without their own; the
        #: tuner of these tasks gives it.
        self._goal = keeping.goal_of(run_dir)

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
        due: Due | None = None,
    ) -> dict[str, Any] | None:
        """Add tasks to a run that is in progress: all of them, or none if one is refused.

        A run that was started without `keep_open` ends as soon as all its tasks have ended.

        The other arguments hold for each of the tasks, and replace the task's own (see `Task`). The
        tasks may train under the techniques with which the run was started.

        `due` is a deadline by this machine's clock: `"18:00"`, `"+3h"`, a `timedelta` or a
        `datetime`. The tasks are refused, with the code `late`, if the plan that the run would
        adopt ends one of them later, or has another task miss its deadline. With `due`, returns
        what `preview` says of the tasks.
        """
        prepared = self._prepared(
            tasks, self._wishes(after, priority, deadline, release, due), in_time=due is not None
        )
        self._send(prepared)
        return prepared.preview

    def preview(
        self,
        tasks: Task | Iterable[Task],
        *,
        after: Before | None = None,
        priority: int | None = None,
        deadline: float | None = None,
        release: float | None = None,
        due: Due | None = None,
    ) -> dict[str, Any]:
        """When tasks would end if they were submitted now, and whom they would delay.

        Takes the arguments of `submit`, and submits nothing. Times are seconds on the run's clock,
        as in `status`; the end of a task is None if it is not known before it is measured.
        """
        wishes = self._wishes(after, priority, deadline, release, due)
        found: dict[str, Any] = self._previewed(self._packed_here(tasks)[0], wishes)["preview"]
        return found

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
        """Explain where a task, or without a name the run, stands, by codes and sentences."""
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

    def wait_for(
        self,
        tasks: Iterable[str],
        timeout: float | None = None,
        *,
        tell: Callable[[str], None] | None = None,
    ) -> RunResult:
        """Wait until tasks of the run have ended, though the run goes on; returns their result.

        If the process that drives the run ends, this waits until another takes the run up.

        Args:
            tasks: their names.
            timeout: the most seconds to wait; None: as long as it takes.
            tell: gets lines for people, such as `print`: which tasks have ended, and when the
                others are expected to.

        Raises `InvalidInput` if the run has no such task, `TimeoutError` (the tasks go on), and
        `TasksFailed` if a task failed.
        """
        names = [tasks] if isinstance(tasks, str) else list(tasks)
        return wait_for(self, {name: name for name in names}, timeout=timeout, tell=tell)

    def __repr__(self) -> str:
        """Show class and run directory."""
        return f"{type(self).__name__}({str(self._run_dir)!r})"

    def _wishes(self, after: Any, priority: Any, deadline: Any, release: Any, due: Any) -> Wishes:
        if due is not None:
            if deadline is not None:
                raise InvalidInput("`deadline` and `due` are both given; give only one of them")
            deadline = self.status()["now_s"] + seconds_until(due)
        return Wishes.checked(after=after, priority=priority, deadline=deadline, release=release)

    def _prepared(
        self, tasks: Task | Iterable[Task], wishes: Wishes, *, in_time: bool
    ) -> _Prepared:
        """Write the directories of new tasks. If this fails they are gone, and the run knows none.

        With `in_time`, raises `Refused` if a due time can't be kept.
        """
        packed, here = self._packed_here(tasks)
        workload = [each.task for each in packed]
        preview = self._in_time(self._previewed(packed, wishes)) if in_time else None
        directories = run_directory.write_tasks(
            self._run_dir, workload, [each.pickle for each in packed], here
        )
        prepared = _Prepared(packed, directories, [], preview)
        try:
            request.put_checkpoints(self._run_dir, packed, directories)
            prepared.described.extend(
                self._described(each, directory, wishes)
                for each, directory in zip(packed, directories, strict=True)
            )
        except BaseException:
            self._drop(prepared)
            raise
        return prepared

    def _send(self, prepared: _Prepared) -> None:
        """Submit tasks. Unless the run refuses them, their directories stay: it may have them."""
        try:
            self._command({"command": "submit", "tasks": prepared.described})
        except (InvalidInput, RunOver) as error:
            self._drop(prepared)
            if isinstance(error, RunOver):
                raise RunOver(
                    f"{error}. It takes no more tasks: start another run for them. A run that is "
                    "started with keep_open=True goes on until it is told to close"
                ) from None
            raise
        for each, directory in zip(prepared.packed, prepared.directories, strict=True):
            self._packed[each.task.name] = each
            self._directories[each.task.name] = directory

    def _drop(self, prepared: _Prepared) -> None:
        """Remove the directories of tasks that no journal names."""
        for directory in prepared.directories:
            shutil.rmtree(self._run_dir / directory, ignore_errors=True)

    def _packed_here(self, tasks: Task | Iterable[Task]) -> tuple[list[Packed], Surroundings]:
        """The tasks, ready to travel from this program, and its surroundings."""
        workload = request.checked_tasks([tasks] if isinstance(tasks, Task) else tasks)
        self._check(workload)
        here, of_run = Surroundings.here(), Surroundings.read(self._run_dir / STARTED)
        if of_run is not None:
            here.refuse_other_python(of_run)
        # From elsewhere, the same code may read other files.
        is_others = run_directory.is_joined(self._run_dir)
        is_elsewhere = is_others or (of_run is not None and here.cwd != of_run.cwd)
        return request.pack(workload, cwd=here.cwd if is_elsewhere else None), here

    def _previewed(self, packed: Sequence[Packed], wishes: Wishes) -> dict[str, Any]:
        """The run's reply to the question what these tasks would do."""
        # Nothing is written, so no task has a directory.
        tasks = [self._described(each, "tasks/none", wishes) for each in packed]
        return self._ask({"query": "preview", "tasks": tasks})

    @staticmethod
    def _in_time(reply: dict[str, Any]) -> dict[str, Any]:
        """The preview of a reply; raises if it shows that a due time can't be kept."""
        if reply.get("why_late") is not None:
            raise Refused(f"the due time can't be kept: {reply['why_late']}", "late")
        preview: dict[str, Any] = reply["preview"]
        return preview

    def _command(self, command: dict[str, Any]) -> None:
        self._ask(command)

    def _ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """The run's reply to a command or a question; raises if it is refused."""
        text = json.dumps({"version": 1, **request}, allow_nan=False)
        answer = native.ask(self._run_dir, text)
        if answer is None:
            raise RunOver(
                f"no process drives the run `{self._run_dir}`; `saturn status "
                f"{shlex.quote(str(self._run_dir))}` tells where the run stands"
            )
        reply: dict[str, Any] = json.loads(answer)
        if reply["ok"]:
            return reply
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
        return self._goal | packed.described(directory, Profile([]), [], wishes)

    def _timed_out(self, timeout: float | None) -> TimeoutError:
        return TimeoutError(f"the run `{self._run_dir}` is not over after {timeout} s; it goes on")

    def _why_failed(self, failed: Sequence[TaskResult]) -> str:
        """The errors of tasks; if the run's output has told them, how to see more of them."""
        if not self._is_told:
            return "\n".join(f"task `{task.name}`: {task.error}" for task in failed)
        names = ", ".join(f"`{task.name}`" for task in failed[:_NAMED])
        more = f" and {len(failed) - _NAMED} more" if len(failed) > _NAMED else ""
        which = shlex.quote(failed[0].name) if len(failed) == 1 else "TASK"
        return f"{names}{more}; why: saturn explain {shlex.quote(str(self._run_dir))} {which}"

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
            how_many = f"{len(failed)} of {len(result.tasks)} tasks failed"
            raise TasksFailed(f"{how_many}\n{self._why_failed(failed)}", result)
        return result
