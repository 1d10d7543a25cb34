"""The tasks of the request to the runtime, checked, and described as plain data.

What can be refused about tasks is refused here, before anything is on disk; `settings` does the
same for a run's settings. A task is described in the same form at a run's start and when it is
submitted later.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from saturn import library
from saturn.errors import InvalidInput
from saturn.library import Entry
from saturn.plain.sizes import size_text
from saturn.runs.preload import functions_of, preload_entries
from saturn.runs.profiles import Profile
from saturn.runs.result import trial_of
from saturn.scripts.command import TECHNIQUE as SCRIPT
from saturn.scripts.task import ScriptTask
from saturn.stoppers.given import Reports
from saturn.tasks.allowed import check_allowed, described_allowed
from saturn.tasks.beginnings import Continued, continued, put
from saturn.tasks.evaluation import Evaluation
from saturn.tasks.pickling import dump_task
from saturn.tasks.profile_key import key_of
from saturn.tasks.task import Task
from saturn.tasks.wishes import checked_deadline, checked_priority, checked_time, names_before

#: If a pickled task has at least this many bytes, the user gets a note.
_HEAVY = 100_000_000


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """Arguments of `submit` on its tasks' schedule; those given replace the tasks' own."""

    after: list[str] | None = None
    priority: int | None = None
    deadline: float | None = None
    release: float | None = None

    @classmethod
    def checked(cls, *, after: Any, priority: Any, deadline: Any, release: Any) -> Wishes:
        """Check the arguments; raises `TypeError` or `ValueError`."""
        return cls(
            after=None if after is None else names_before(after),
            priority=None if priority is None else checked_priority(priority),
            deadline=checked_deadline(deadline),
            release=None if release is None else checked_time("release", release),
        )


@dataclass(frozen=True)
class Packed:
    """A task that is ready to travel: its pickle and its profile key."""

    task: Task
    pickle: bytes
    key: str
    #: The checkpoint from which it continues.
    continued: Continued | None = None

    @property
    def is_rest(self) -> bool:
        """Whether it is the rest of a script, which must come after the script's training."""
        return isinstance(self.task, ScriptTask) and self.task.is_rest

    def described(
        self, directory: str, reused: Profile, entries: Sequence[Entry], wishes: Wishes | None
    ) -> dict[str, Any]:
        """The task in the runtime's form; `wishes` is None if its schedule doesn't matter."""
        task = self.task
        described: dict[str, Any] = {
            "name": task.name,
            "dir": directory,
            **_length(task),
            "gpu_range": task.gpu_range,
            "allowed": described_allowed(task),
            "profile_key": self.key,
            "measured": self._measured(reused, entries),
        }
        if task.evaluation.evaluate is not None:
            described["evaluation"] = {"every_steps": task.evaluation.every}
        if self.continued is not None:
            described["start_step"] = self.continued.step
        if task.parameters:
            described["parameters"] = task.parameters
        if task.evaluation.best is not None:
            described["goal"] = dict(zip(("metric", "mode"), task.evaluation.best, strict=True))
        if isinstance(task, ScriptTask) and task.script_definition.resume is None:
            described["can_resume"] = False
        if wishes is not None:
            described["wishes"] = {
                "priority": task.priority if wishes.priority is None else wishes.priority,
                "deadline_s": task.deadline if wishes.deadline is None else wishes.deadline,
                "release_s": task.release if wishes.release is None else wishes.release,
            }
            # A soft deadline stays soft if `submit` gives another time for it.
            if task.late_price is not None:
                described["wishes"]["late_price"] = task.late_price
            if task.most_late is not None:
                described["wishes"]["most_late_s"] = task.most_late
            if self.is_rest:
                described["is_rest"] = True
            is_own = wishes.after is None or self.is_rest
            described["after"] = task.after if is_own else wishes.after
        return described

    def _measured(self, reused: Profile, entries: Sequence[Entry]) -> list[dict[str, Any]]:
        """Trials that needn't be repeated: the task's own, or else those of an earlier run."""
        task = self.task
        if isinstance(task, ScriptTask) and task.expected_step_s is not None:
            return [_expected(task, task.expected_step_s)]
        trials = (
            [trial_of(task.name, strategy) for strategy in task.strategies]
            if task._measured_as == self.key
            else reused.of(task.name, self.key)
        )
        techniques = {entry.name for entry in entries}
        return [trial for trial in trials if trial["technique"] in techniques]


def pack(tasks: Sequence[Task], *, cwd: str | None = None) -> list[Packed]:
    """Pickle the tasks; raises `NotPicklable`. Warns of very large values that they carry.

    With `cwd`, tasks share trials and the length of an epoch only with tasks of that directory.
    """
    buffers: dict[int, tuple[Any, bytes]] = {}
    keys, pickles = [], []
    for task in tasks:
        definition = task.definition()
        try:
            key = key_of(task, buffers).of(cwd)
        except Exception:
            dump_task(definition)  # raises with the part that can't travel
            raise
        keys.append(key)
        pickles.append(dump_task(replace(definition, group=key.text)))
    carried: dict[tuple[int, str, str], list[str]] = {}
    for task, data, key in zip(tasks, pickles, keys, strict=True):
        if len(data) >= _HEAVY:
            carried.setdefault(key.largest, []).append(task.name)
    for (size, kind, variable), names in carried.items():
        and_more = f" and {len(names) - 1} more" if len(names) > 1 else ""
        what = f"a {kind} of {size_text(size)}" + (f" in `{variable}`" if variable else "")
        sys.stderr.write(
            f"saturn: the functions of `{names[0]}`{and_more} carry {what}, which is written into "
            "the run once a task and read by each of its workers; have the function load it\n"
        )
    return [
        Packed(task, data, key.text, continued(task, _length(task)["steps"]))
        for task, data, key in zip(tasks, pickles, keys, strict=True)
    ]


def put_checkpoints(run_dir: Path, packed: Sequence[Packed], directories: Sequence[str]) -> None:
    """Put checkpoints that tasks continue into their directories; `InvalidInput`, `OSError`."""
    for each, directory in zip(packed, directories, strict=True):
        if each.continued is not None:
            put(each.continued, run_dir / directory)


def preload(packed: Sequence[Packed]) -> list[str]:
    """What the warm parent imports, so that ranks of these tasks needn't."""
    of_models = [each for each in packed if not isinstance(each.task, ScriptTask)]
    functions = [
        function for each in of_models for function in functions_of(*_functions(each.task))
    ]
    return preload_entries([each.pickle for each in of_models], functions)


def _functions(task: Task) -> list[Any]:
    """The functions of a task that workers call."""
    evaluate = task.evaluation.evaluate
    of_evaluation: list[Any] = [evaluate]
    if isinstance(evaluate, Evaluation):
        of_evaluation = [evaluate.get_dataloader, evaluate.metrics, evaluate.keep]
    return [
        *(task.get_model, task.get_dataloader, task.loss_function, task.training_step),
        getattr(task._step_loss, "make_trainer", None),
        *of_evaluation,
    ]


def reports_of(task: Task) -> Reports:
    """What a task will report, as far as known: a script may report anything."""
    evaluates = task.evaluation.evaluate is not None
    is_script = isinstance(task, ScriptTask)
    return Reports(
        name=task.name,
        only_loss=not (evaluates or is_script),
        best=task.evaluation.best,
        evaluates=evaluates,
    )


def checked_tasks(tasks: Iterable[Task], *, may_be_empty: bool = False) -> list[Task]:
    """The tasks as a list; raises `TypeError` or `InvalidInput`."""
    if isinstance(tasks, Task):
        raise TypeError("tasks is one Task; it must be a list of them")
    workload = list(tasks)
    for index in reversed(range(len(workload))):
        rest = getattr(workload[index], "_rest", None)
        if rest is not None:
            workload.insert(index + 1, rest(workload[index]))
    if not workload and not may_be_empty:
        raise InvalidInput("tasks is empty; there is nothing to do")
    names: dict[str, int] = {}
    for index, task in enumerate(workload):
        if not isinstance(task, Task):
            kind = type(task).__name__
            raise TypeError(f"tasks holds a {kind}; it must hold saturn.Task objects")
        if task.name in names:
            raise InvalidInput(
                f"tasks {names[task.name]} and {index} are both called `{task.name}`; names must "
                "be unique within a run"
            )
        names[task.name] = index
    return workload


def check_techniques(tasks: Sequence[Task], entries: Sequence[Entry]) -> None:
    """Refuse tasks that name unknown techniques or knobs, or that allow none of the run's."""
    if any(task.techniques or task.knobs for task in tasks):
        check_allowed(tasks, entries, library.known())


def with_scripts(
    entries: Sequence[Entry], tasks: Sequence[Task] = (), *, keep_open: bool = True
) -> list[Entry]:
    """The run's techniques; with the technique of scripts, if it has or may get scripts."""
    has_scripts = any(isinstance(task, ScriptTask) for task in tasks)
    return [*entries, library.of_scripts()] if has_scripts or keep_open else list(entries)


def check_order(tasks: Sequence[Task]) -> None:
    """Refuse a first workload in which a task doesn't follow the tasks that it comes after."""
    every = {task.name for task in tasks}
    seen: set[str] = set()
    for task in tasks:
        for name in task.after:
            if name not in seen:
                wrong = "must stand before it in" if name in every else "is not in"
                raise InvalidInput(
                    f"task `{task.name}` comes after `{name}`, which {wrong} the list of tasks"
                )
        seen.add(task.name)


def _length(task: Task) -> dict[str, int | None]:
    """A task's length: in steps, or in epochs, which become steps once an epoch is counted."""
    if isinstance(task, ScriptTask):
        # Without `steps`, a script's reports say how many steps its one epoch has.
        told = task.script_definition.steps
        return {"steps": told, "epochs": 1 if told is None else None}
    hparams = task.hparams
    steps = hparams.known_steps
    length = {"steps": steps, "epochs": hparams.epochs if steps is None else None}
    if hparams.gradient_accumulation_steps > 1:
        length["batches_a_step"] = hparams.gradient_accumulation_steps
    return length


def _expected(task: ScriptTask, step_s: float) -> dict[str, Any]:
    """A made-up trial, for a task that is not to be tried."""
    assert task.gpu_range is not None  # a script has 1 by default
    return {
        "task": task.name,
        "technique": SCRIPT,
        "gpus": task.gpu_range[0],
        "knobs": {},
        "outcome": "measured",
        "step_s": step_s,
        "setup_s": 0.0,
        "peak_memory_bytes": 0,
        "timed_steps": 1,
    }
