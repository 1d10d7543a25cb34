"""A task that is a script: checked where it is made, and known by what it is started with.

`Task.script` makes it, and says what its arguments mean.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from saturn.names import did_you_mean
from saturn.script import RESUME_FLAG, TECHNIQUE, ScriptDefinition
from saturn.task import HParams, Task

if TYPE_CHECKING:
    from saturn.wishes import Before

#: Its length is the script's own matter: what a `Task` needs is filled in and never looked at.
_NO_HPARAMS = HParams(lr=1.0, batch_count=1)


class ScriptTask(Task):
    """See `Task.script`."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        args: Iterable[object],
        *,
        name: str | None,
        steps: int | None,
        gpu_range: Iterable[int] | int,
        resume: str | bool | None,
        cwd: str | os.PathLike[str] | None,
        environment: Mapping[str, str] | None,
        report_within_s: float,
        stop_within_s: float,
        priority: int,
        deadline: float | None,
        release: float,
        after: Before,
    ) -> None:
        if isinstance(args, str):
            raise TypeError(f"args is a string; it must be a list, as {args.split()!r}")
        directory = Path.cwd() if cwd is None else Path(cwd).absolute()
        script = directory / path
        if not script.is_file():
            there = [one.name for one in script.parent.glob("*.py")]
            near = f"; {did_you_mean(script.name, there)}" if there else ""
            raise FileNotFoundError(f"there is no script {script}{near}")
        if steps is not None and (isinstance(steps, bool) or not isinstance(steps, int)):
            raise TypeError(f"steps is a {type(steps).__name__}; it must be a whole number")
        if steps is not None and steps < 1:
            raise ValueError(f"steps is {steps}; it must be at least 1")
        for field, seconds in (
            ("report_within_s", report_within_s),
            ("stop_within_s", stop_within_s),
        ):
            if not isinstance(seconds, int | float) or not 0 < seconds < math.inf:
                raise ValueError(f"{field} is {seconds!r}; it must be a positive number of seconds")
        super().__init__(
            _nothing,
            _nothing,
            None,
            _NO_HPARAMS,
            gpu_range,
            name,
            priority=priority,
            deadline=deadline,
            release=release,
            after=after,
            techniques=[TECHNIQUE],
        )
        if name is None:
            self.name = f"{script.stem}-{self.name.removeprefix('task-')}"
        self.script_definition = ScriptDefinition(
            name=self.name,
            path=script,
            args=tuple(str(arg) for arg in args),
            cwd=directory,
            environment={str(key): str(value) for key, value in (environment or {}).items()},
            steps=steps,
            resume=_flag(resume, script),
            report_within_s=float(report_within_s),
            stop_within_s=float(stop_within_s),
        )

    def definition(self) -> ScriptDefinition:
        """What travels to the workers."""
        return replace(self.script_definition, name=self.name)

    def __repr__(self) -> str:
        """Name it, and what is run."""
        script = self.script_definition
        return f"Task.script({str(script.path)!r}, {list(script.args)!r}, name={self.name!r})"


def _flag(resume: str | bool | None, script: Path) -> str | None:
    """The flag with which a script goes on; None where it can't."""
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


def _nothing(*args: Any, **kwargs: Any) -> NoReturn:
    raise TypeError("a script has no model, loader or loss of its own to call")
