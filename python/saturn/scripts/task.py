"""A task that is a script: checked when it is made, and identified by its command.

`Task.script` makes it, and explains its arguments.
"""

from __future__ import annotations

import ast
import inspect
import math
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from saturn.plain.names import did_you_mean
from saturn.scripts.command import REPORT, RESUME_FLAG, TECHNIQUE, ScriptDefinition
from saturn.tasks.hparams import HParams
from saturn.tasks.task import Task

if TYPE_CHECKING:
    from saturn.trainers.script import ScriptTrainer

#: See `Task.script`.
_REPORT_WITHIN_S, _STOP_WITHIN_S = 600.0, 60.0
#: The rest of a script may evaluate for long without a report.
_REST_WITHIN_S = 7 * 86_400.0
_OWN_SEED = 'the script seeds itself; give it an argument, such as ["--seed", "3"]'
#: Arguments of `Task` that `Task.script` lacks, and what to do instead: for a script that makes a
#: trainer, and for one that trains by itself.
_INSTEAD = {
    "seed": (_OWN_SEED, _OWN_SEED),
    "evaluate": (
        'the trainer evaluates as its arguments say, such as ["--eval_strategy", "steps"]',
        "the script evaluates by itself; have it report numbers: saturn.report(step, loss, "
        "accuracy=…)",
    ),
    "evaluate_every": (
        'the trainer evaluates as its arguments say, such as ["--eval_steps", "100"]',
        "the script decides when it evaluates; give it an argument",
    ),
    "best": (
        'the trainer keeps its best checkpoint as its arguments say: ["--load_best_model_at_end", '
        '"True", "--metric_for_best_model", "loss"]',
        "the script writes its own files; have it keep its best weights itself",
    ),
    "hints": ("use Task.from_trainer", "no technique looks into the script"),
}
#: The longest time in this process from the start of each script to its call of `train()`, in
#: seconds. The first time includes loading the script's imports, as in a process of its own.
_reached_s: dict[Path, float] = {}
#: Required by `Task`, but never used: a script's length is its own affair.
_NO_HPARAMS = HParams(lr=1.0, batch_count=1)


def of_script(
    path: str | os.PathLike[str],
    args: Iterable[object],
    *,
    name: str | None,
    gpu_range: Iterable[int] | int | None,
    cwd: str | os.PathLike[str] | None,
    environment: Mapping[str, str] | None,
    trainer: bool | None,
    parameters: Mapping[str, Any] | None,
    of_trainer: Mapping[str, Any],
    of_own_loop: Mapping[str, Any],
    wishes: Mapping[str, Any],
    others: Mapping[str, Any],
) -> Task:
    """The task of a script, of whichever kind it is.

    `of_trainer` and `of_own_loop` are arguments for one kind only; `others` are arguments that no
    script's task has.
    """
    if isinstance(args, str):
        raise TypeError(f"args is a string; it must be a list, as {args.split()!r}")
    directory = Path.cwd() if cwd is None else Path(cwd).absolute()
    script = directory / path
    check_there(script)
    words = tuple(str(arg) for arg in args)
    variables = {str(key): str(value) for key, value in (environment or {}).items()}
    is_trainer = makes_trainer(script) if trainer is None else trainer
    _refuse(others, is_trainer=is_trainer)
    for key, value in (of_own_loop if is_trainer else of_trainer).items():
        if key == "save_dir" and value is not None:
            raise ValueError(
                f"save_dir is given, and {script.name} trains by itself: it writes its own files; "
                'give it an argument, such as ["--output_dir", "out"], or say trainer=True'
            )
        if value is not None:
            with_trainer = "makes a transformers Trainer, whose own arguments count"
            what = with_trainer if is_trainer else "trains by itself"
            raise ValueError(
                f"{key} is given, and {script.name} {what}; leave {key} out, or say "
                f"trainer={not is_trainer}"
            )
    if not is_trainer:
        return ScriptTask(
            script,
            words,
            directory,
            name=name,
            gpu_range=gpu_range,
            environment=variables,
            **of_own_loop,
            parameters=parameters,
            wishes=wishes,
        )
    began_s = time.monotonic()
    # Imported here, because it imports transformers.
    from saturn.trainers.script import ScriptTrainer

    make_trainer = ScriptTrainer(script, words, directory, variables)
    task = Task.from_trainer(
        make_trainer, gpu_range, name, parameters=parameters, **of_trainer, **wishes
    )
    _reached_s[script] = max(time.monotonic() - began_s, _reached_s.get(script, 0.0))
    if name is None:
        task.name = f"{script.stem}-{task.name.removeprefix('task-')}"
    task._rest = partial(_rest, make_trainer)
    return task


def _refuse(others: Mapping[str, Any], *, is_trainer: bool) -> None:
    """Raise `TypeError` for the first of these arguments, with what to do instead."""
    for name in others:
        if name in _INSTEAD:
            of_trainer, of_own_loop = _INSTEAD[name]
            instead = of_trainer if is_trainer else of_own_loop
            raise TypeError(f"Task.script has no `{name}`: {instead}")
        near = did_you_mean(name, inspect.signature(Task.script).parameters.keys() - {"others"})
        raise TypeError(f"Task.script() got an unexpected keyword argument '{name}'; {near}")


def check_there(script: Path) -> None:
    """Raise `FileNotFoundError`, with the nearest name, if there is no such script."""
    if not script.is_file():
        there = [one.name for one in script.parent.glob("*.py")]
        near = f"; {did_you_mean(script.name, there)}" if there else ""
        raise FileNotFoundError(f"there is no script {script}{near}")


def makes_trainer(script: Path) -> bool:
    """Whether a script seems to make a trainer of transformers and to call its `train()`."""
    try:
        tree = ast.parse(script.read_bytes())
    except (SyntaxError, ValueError):
        return False  # not Python, so an executable program
    imported: set[str] = set()
    trains = reports = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imported |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add((node.module or "").partition(".")[0])
        elif isinstance(node, ast.Attribute):
            trains = trains or node.attr == "train"
            reports = reports or node.attr == "report"
        elif isinstance(node, ast.Constant):
            reports = reports or node.value == REPORT
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    has_trainer = any(each.endswith("Trainer") for each in names)
    return bool(imported & {"transformers", "trl"}) and has_trainer and trains and not reports


def _rest(script: ScriptTrainer, task: Task) -> ScriptTask:
    """The script's part after its training, as a task that comes after it.

    It can't be tried before the training. Until then, its planned time is the time that the script
    took to reach its training, which it repeats. The time of what follows is unknown.
    """
    rest = ScriptTask(
        script.path,
        script.args,
        script.cwd,
        name=f"{task.name}-rest",
        environment=script.environment,
        steps=1,
        resume=False,
        report_within_s=_REST_WITHIN_S,
        before=("-m", "saturn.trainers.rest", task.name),
        wishes={"priority": task.priority, "after": [task.name]},
    )
    rest.expected_step_s = _reached_s[script.path]
    rest.is_rest = True
    return rest


class ScriptTask(Task):
    """A script that trains by itself. See `Task.script`."""

    #: The expected seconds of a step, if no trial is to measure them.
    expected_step_s: float | None = None
    #: Whether it is the rest of a script, which must come after the script's training.
    is_rest: bool = False

    def __init__(
        self,
        path: Path,
        args: tuple[str, ...],
        cwd: Path,
        *,
        name: str | None,
        gpu_range: Iterable[int] | int | None = None,
        environment: Mapping[str, str] | None = None,
        steps: int | None = None,
        resume: str | bool | None = None,
        report_within_s: float | None = None,
        stop_within_s: float | None = None,
        before: tuple[str, ...] = (),
        trains: bool = True,
        parameters: Mapping[str, Any] | None = None,
        wishes: Mapping[str, Any],
    ) -> None:
        """`path` is the script's file; `before` has arguments that precede the path."""
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int)):
            raise TypeError(f"steps is a {type(steps).__name__}; it must be a whole number")
        if steps is not None and steps < 1:
            raise ValueError(f"steps is {steps}; it must be at least 1")
        super().__init__(
            _nothing,
            _nothing,
            None,
            _NO_HPARAMS,
            1 if gpu_range is None else gpu_range,
            name,
            techniques=[TECHNIQUE],
            parameters=parameters or {},
            **wishes,
        )
        if name is None:
            self.name = f"{path.stem}-{self.name.removeprefix('task-')}"
        self.script_definition = ScriptDefinition(
            name=self.name,
            path=path,
            args=args,
            cwd=cwd,
            environment=dict(environment or {}),
            steps=steps,
            resume=_flag(resume, path),
            report_within_s=_seconds("report_within_s", report_within_s, _REPORT_WITHIN_S),
            stop_within_s=_seconds("stop_within_s", stop_within_s, _STOP_WITHIN_S),
            before=before,
            trains=trains,
        )

    def definition(self) -> ScriptDefinition:
        """The definition, which travels to the workers."""
        return replace(self.script_definition, name=self.name)

    def __repr__(self) -> str:
        """Show path, arguments and name."""
        script = self.script_definition
        return f"Task.script({str(script.path)!r}, {list(script.args)!r}, name={self.name!r})"


def _flag(resume: str | bool | None, script: Path) -> str | None:
    """The flag with which a script resumes; None if it can't resume."""
    if resume is None:
        text = script.read_text(errors="replace")
        word = RESUME_FLAG.lstrip("-")
        known = (each for each in (word, word.replace("_", "-")) if each in text)
        return next((f"--{each}" for each in known), None)
    if resume is True:
        return RESUME_FLAG
    if resume is False:
        return None
    if not isinstance(resume, str) or not resume:
        raise TypeError(
            f'resume is {resume!r}; it must be a flag, such as "{RESUME_FLAG}", or False where the '
            "script can't go on from a checkpoint"
        )
    return resume


def _seconds(field: str, given: float | None, default: float) -> float:
    if given is None:
        return default
    if not isinstance(given, int | float) or not 0 < given < math.inf:
        raise ValueError(f"{field} is {given!r}; it must be a positive number of seconds")
    return float(given)


def _nothing(*args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError("a script has no model, loader or loss of its own to call")
