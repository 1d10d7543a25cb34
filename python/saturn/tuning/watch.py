"""The thread that shows the tasks' reports to a run's tuner, and sends its rulings to the run.

In each round the thread reads new reports; now and then it asks for the run's status. All rulings
of a round reach the run in one command, together with the values on which they rest: the journal
has both or neither. If the run refuses a command because it stops or has ended, that is no failure.
"""

from __future__ import annotations

import json
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn import native
from saturn.errors import InvalidInput, RunFailed, RunOver
from saturn.plain import working_directory
from saturn.plain.measures import numbers, plain
from saturn.runs import run_directory
from saturn.stoppers.progress import ENDED, HELD, LOSS, TRAINING, WAITING, Progress
from saturn.stoppers.stopper import AHEAD, GO_ON, HOLD, STOP, Ruling
from saturn.tuning.reports import WINDOW, Look, TaskReports
from saturn.tuning.tuner import Tuner

if TYPE_CHECKING:
    from saturn.tuning.scope import Scope

#: Seconds between two rounds.
_ROUND_S = 0.1
#: Least seconds between two requests for the status.
_LOOK_S = 0.2
#: The pause between two requests is at least this many times as long as a request took.
_LOOKS_PER_TIME = 20.0

#: The wait before a command is sent again to a run that did not answer.
_AGAIN_S = 5.0

#: How long a device must stand idle, or a task wait for one, before the tuner is asked about it. A
#: plan and a launch take less.
_LASTING_S = 3.0
#: No task trains ahead for so long after one that found no device. Idle devices may be of another
#: type, or too few for its gang.
_IN_VAIN_S = 60.0

_STAGES = {"running": TRAINING, "held": HELD}
_ENDS = ("done", "diverged", "failed", "cancelled", "stopped")
#: The stages in which a task wants no device, or has its devices.
_CONTENT = ("running", "held", "paused", *_ENDS)


class _CutOff(Exception):
    """The run can't be asked: nobody drives another person's pool."""


class Watch:
    """Connects a tuner with its run, from the run's beginning to its end."""

    def __init__(self, tuner: Tuner, scope: Scope) -> None:
        """`begin` starts the thread, which first shows the tuner all that is known of the run."""
        self.tuner = tuner
        self._scope = scope
        self._run = scope.run
        self._run._goal = tuner.goal
        self._tasks: dict[str, Progress] = {}
        self._reports: dict[str, TaskReports] = {}
        #: Whether no more tasks will come.
        self._is_complete = False
        self._now_s = 0.0
        self._next_look = 0.0
        #: Tasks that the tuner has ended, even if they haven't stopped yet.
        self._stopped: set[str] = set()
        #: Tasks that trained at the last status; and tasks whose reports are to be read.
        self._live: set[str] = set()
        self._to_read: set[str] = set()
        #: For each task, the tasks that it comes after.
        self._after: dict[str, list[str]] = {}
        #: Tasks that wait for devices that the pool does not have, and will not get.
        self._lacking: set[str] = set()
        #: True if a device is idle and no task waits, False if a task waits for a device, None if
        #: neither; and since when. Tasks that train ahead are not asked.
        self._is_idle: bool | None = None
        self._idle_since = 0.0
        #: When tasks were let train ahead that have not begun yet; and until when no more are.
        self._ahead_since: dict[str, float] = {}
        self._in_vain_until = 0.0
        self._noted: set[str] = set()
        #: Tasks that are the rests of scripts: the code after `train()`. They train nothing.
        self._rests: set[str] = set()
        self._is_over = threading.Event()
        #: The tuner's error, if the run was stopped because of it.
        self.cause: Exception | None = None
        #: Whether the tuner has raised and decides nothing any more, and tasks that it held go on.
        self.has_given_up = False
        #: Whether the thread has ended because the run can't be asked any more, as while nobody
        #: drives another person's pool.
        self.is_cut_off = False
        self._thread = threading.Thread(
            target=self._watch, name=f"saturn tuner {scope.run.run_dir.name}", daemon=True
        )

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    @property
    def num_tasks(self) -> int:
        """How many tasks there are, as far as the tuner was shown."""
        return len(self._tasks)

    @property
    def is_finished(self) -> bool:
        """Whether nothing is left to decide: no more tasks will come, and all have ended."""
        tasks = list(self._tasks.values())
        return self._is_complete and bool(tasks) and all(task.end is not None for task in tasks)

    def end(self, *, within_s: float | None = None) -> None:
        """End the thread; returns once the tuner knows everything that the run realised.

        A tuner that hangs is left to itself after `within_s` seconds.
        """
        self._is_over.set()
        if self._thread.ident is not None:
            self._thread.join(within_s)

    def _watch(self) -> None:
        if self.tuner.suggests:
            # A suggested script is run up to its training, in the script's directory. The program's
            # other threads stay where they are.
            working_directory.of_this_thread_alone()
        while not native.is_driven(self._run.run_dir):
            if self._is_over.wait(_ROUND_S):
                break
        run_dir = self._run.run_dir
        if not (run_directory.has_begun(run_dir) or run_directory.is_joined(run_dir)):
            return  # the run was refused
        try:
            self._recall()
            self.tuner.began(self._scope, self._tasks)
            while not self._is_over.wait(_ROUND_S):
                self._round()
            self._look()
            self._to_read = set(self._tasks)
            self._read()
            self.tuner.run_ended(self._tasks)
        except _CutOff:
            self.is_cut_off = True
        except Exception as error:
            self._give_up(error)

    def _recall(self) -> None:
        """Restore the reports that an earlier process has seen."""
        self._look()
        for one in self._asked(native.judged):
            if one["task"] not in self._tasks:
                continue  # another tuner of the run has judged it
            found = numbers(one.get("values", {})).items()
            values = {name: math.nan if value is None else value for name, value in found}
            self._tasks[one["task"]].add(one["step"], values)
            if "ruling" in one:
                is_ahead = one["ruling"] == GO_ON and one.get("reason") == AHEAD
                self._tasks[one["task"]].train_ahead(is_ahead)
            self._reports[one["task"]].was_seen(one["step"], values)

    def _round(self) -> None:
        now = time.monotonic()
        is_to_look = now >= self._next_look
        if is_to_look:
            self._look()
            took_s = time.monotonic() - now
            self._next_look = now + max(_LOOK_S, _LOOKS_PER_TIME * took_s)
        # Read after the status, so that all reports of tasks that had ended are read.
        judgements = self._read()
        self._send(judgements)
        if not is_to_look:
            return
        if any(one.get("ruling") == HOLD for one in judgements):
            self._look()  # scripts that can't go on from a checkpoint are not held while they train
        rulings = list(self.tuner.at(self._now_s, self._tasks))
        if self._is_at_rest() and not rulings:
            rulings += self.tuner.at_rest(self._tasks)
        self._send(self._judgements(rulings or self._about_devices(now)))

    def _about_devices(self, now: float) -> list[Ruling]:
        """Rulings because devices are idle, or because tasks wait for devices."""
        self._ahead_since = {
            name: since
            for name, since in self._ahead_since.items()
            if self._tasks[name].is_ahead and self._tasks[name].stage == WAITING
        }
        in_vain = [n for n, since in self._ahead_since.items() if now - since > _LASTING_S]
        if in_vain:
            self._in_vain_until = now + _IN_VAIN_S
            reason = "it was to train ahead, and no idle device can take it"
            return [Ruling(name, HOLD, reason) for name in in_vain]
        lasts = now - self._idle_since > _LASTING_S and self._is_complete
        if self._is_idle is None or not lasts or (self._is_idle and now < self._in_vain_until):
            return []
        ask = self.tuner.idle if self._is_idle else self.tuner.crowded
        rulings = list(ask(self._tasks))
        self._idle_since = now
        self._ahead_since |= {one.task: now for one in rulings if one.reason == AHEAD}
        return rulings

    def _is_at_rest(self) -> bool:
        """Whether every task left is held, can't run on this pool, or comes after such a task."""
        if not self._is_complete:
            return False
        held = {name for name, task in self._tasks.items() if task.stage == HELD}
        blocked, before = held | self._lacking, set[str]()
        while blocked != before:
            before = set(blocked)
            blocked |= {name for name, after in self._after.items() if blocked & set(after)}
        return bool(held) and all(
            task.stage == ENDED or name in blocked for name, task in self._tasks.items()
        )

    def _read(self) -> list[dict[str, Any]]:
        """New reports, with the tuner's rulings on them."""
        judgements = []
        for name in sorted(self._to_read):
            task, reports = self._tasks[name], self._reports[name]
            for look in reports.read():
                task.add(look.step, look.values)
                rulings = {one.task: one for one in self.tuner.looked(task, self._tasks)}
                judgements.append(self._judgement(rulings.pop(name, None), look))
                judgements += self._judgements(rulings.values())
            if reports.has_diverged and self.tuner.ends_diverged and name not in self._stopped:
                reason = f"it has diverged: its last {WINDOW} losses are no finite numbers"
                judgements += self._judgements([Ruling(name, STOP, reason)])
            self._point_out(task, reports)
        # Two looks may come before the first reading, so only reading takes a task out.
        self._to_read &= self._live
        return judgements

    def _judgements(self, rulings: Iterable[Ruling]) -> list[dict[str, Any]]:
        """Judgements for rulings on tasks that train, and have not ended meanwhile.

        The rest of a script goes as its training goes: the run cancels it if the training is
        stopped, and nothing keeps it from saving what a finished training has made.
        """
        return [
            self._judgement(one)
            for one in rulings
            if self._tasks[one.task].end is None and one.task not in self._rests
        ]

    def _judgement(self, ruling: Ruling | None, look: Look | None = None) -> dict[str, Any]:
        """A ruling in the run's form; its effect shows at once in the tuner's tasks."""
        name = ruling.task if ruling is not None else look.task  # type: ignore[union-attr]
        task = self._tasks[name]
        judgement: dict[str, Any] = {"task": name, "step": task.step}
        if look is not None:
            judgement |= {"step": look.step, "values": plain(look.values)}
        # A ruling on a task that has ended meanwhile comes too late.
        if ruling is not None and task.end is None:
            judgement |= {"ruling": ruling.ruling, "reason": ruling.reason}
            task.train_ahead(ruling.ruling == GO_ON and ruling.reason == AHEAD)
            if ruling.ruling == STOP:
                self._stopped.add(name)
                task.stage = ENDED
            elif task.stage != ENDED:
                task.stage = WAITING if ruling.ruling == GO_ON else HELD
        return judgement

    def _look(self) -> None:
        """Update the tasks from the run's status, which includes all rulings sent so far."""
        status = self._asked(native.status)
        self._is_complete = self._scope.is_complete(status)
        self._scope.num_devices = status["pool"]["devices"]
        self._now_s = self._scope.clock_s(status)
        self._look_at_devices(status)
        for one in status["tasks"]:
            name = one["name"]
            if not self._scope.is_own(one):
                continue
            is_new = name not in self._tasks
            if is_new:
                path = Path(self._run.run_dir) / one["dir"] / "metrics.jsonl"
                first = one.get("start_step", 0)
                self._tasks[name] = Progress(name)
                self._tasks[name].first_step = first
                self._reports[name] = TaskReports(name, path, self.tuner.metrics, first_step=first)
            task = self._tasks[name]
            # A short task may begin and end between two looks at the status.
            has_moved = one["steps"] != task.steps or (one["stage"] in _ENDS and task.end is None)
            task.steps = one["steps"]
            self._after[name] = one["after"]
            if one.get("is_rest"):
                self._noted.add(name)  # it trains nothing, and so reports no metric
                self._rests.add(name)
            (self._lacking.add if one.get("lacks_devices") else self._lacking.discard)(name)
            if one["stage"] in _ENDS:
                task.stage, task.end = ENDED, one["stage"]
            elif name not in self._stopped:
                # A task that is held stays so while a person pauses it.
                task.stage = HELD if one.get("is_held") else _STAGES.get(one["stage"], WAITING)
            # A task that has just stopped may have reported something before.
            is_live = one["attempt"] is not None
            if is_live or is_new or has_moved or name in self._live:
                self._to_read.add(name)
            (self._live.add if is_live else self._live.discard)(name)

    def _look_at_devices(self, status: Mapping[str, Any]) -> None:
        """Note whether a task of the run waits for devices, or else whether devices are idle."""
        pool = status["pool"]
        has_idle = pool["busy"] < pool["devices"]
        are_trials_open = status["trials"]["open"] > 0
        # A task that has diverged has trained all its steps, so those that come after it start.
        done = {one["name"] for one in status["tasks"] if one["stage"] in ("done", "diverged")}
        # Devices may be idle that none of these tasks can use.
        waits = any(
            one["stage"] not in _CONTENT
            and not one.get("lacks_devices")
            and not (one["name"] in self._tasks and self._tasks[one["name"]].is_ahead)
            and done >= {*one["after"]}
            and one.get("release_s", 0.0) <= status["now_s"]
            for one in status["tasks"]
        )
        is_idle: bool | None = None
        if waits or (are_trials_open and not has_idle):
            is_idle = False
        elif has_idle and not are_trials_open:
            is_idle = True
        if is_idle != self._is_idle:
            self._is_idle, self._idle_since = is_idle, time.monotonic()

    def _asked(self, ask: Callable[[Path], str]) -> Any:
        """What the run answers; raises `_CutOff` if nobody can tell."""
        try:
            return json.loads(ask(self._run.run_dir))
        except RunOver:
            raise _CutOff from None

    def _send(self, judgements: list[dict[str, Any]]) -> None:
        if judgements:
            self._command({"command": "judge", "judgements": judgements})

    def _command(self, command: Mapping[str, Any]) -> None:
        self._until_taken(lambda: self._run._command(dict(command)))

    def _until_taken(self, tell: Callable[[], None]) -> None:
        while True:
            try:
                tell()
                return
            except InvalidInput:
                return  # the run has ended since
            except RunFailed:
                # The run does not answer, as while its disk is full. A command that arrives twice
                # does no harm.
                if self._is_over.wait(_AGAIN_S) or not native.is_driven(self._run.run_dir):
                    return

    def _point_out(self, task: Progress, reports: TaskReports) -> None:
        """Note that a task never reports a metric that the tuner needs."""
        missing = sorted(self.tuner.metrics - {LOSS} - reports.evaluated)
        if not missing or task.name in self._noted:
            return
        if reports.evaluated:
            reported = ", ".join(f"`{name}`" for name in sorted(reports.evaluated))
            what = f"it reports {reported}"
        elif task.end in ("done", "diverged"):
            what = "it was never evaluated"
        else:
            return
        self._noted.add(task.name)
        text = f"its stopper goes by `{missing[0]}`, which this task does not report: {what}"
        self._command({"command": "note", "task": task.name, "text": text})

    def _give_up(self, error: Exception) -> None:
        """Go on without the tuner after it raised, or after the run couldn't be asked."""
        of_sweep = self._scope.of_sweep
        if self.tuner.suggests:
            self.cause = error
            then = "it suggests no more tasks" if of_sweep else "the run stops"
            text = f"the search{of_sweep} can't go on, so {then}"
        else:
            text = (
                f"the stopper{of_sweep} fails: it decides nothing any more, and tasks that it held "
                "go on"
            )
        text = f"{text}: {type(error).__name__}: {error}"
        self._until_taken(lambda: self._scope.note(text))
        rulings: Iterable[Ruling] = self.tuner.given_up(self._tasks)
        self._send(self._judgements(rulings))
        self.has_given_up = True
