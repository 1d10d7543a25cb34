"""The trainer that a script makes: the script runs up to its call of `train()`.

The script runs in this process as `python script.py ARGS` would. It ends at its first call of
`train()` on a `transformers.Trainer`, or on a subclass. Everything that it has made by then stays
alive with the trainer. Its output goes to standard error.

What the script has made may look around later: a dataset opens a file by a relative path, a loss
imports a module that lies beside the script. So a rank, which trains nothing else, becomes the
script's process for good (`ScriptTrainer.take_up`). In any other process the script leaves no
trace.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from saturn.errors import InvalidInput
from saturn.scripts.command import LAUNCHER_VARIABLES
from saturn.tasks.importing import modules_of_program, set_aside_others
from saturn.tasks.sources import script_texts


class _Reached(BaseException):
    """Ends a script at `train()`; a BaseException, so that an `except Exception` can't stop it."""

    def __init__(self, trainer: Any) -> None:
        super().__init__()
        self.trainer = trainer


@dataclass(frozen=True)
class ScriptTrainer:
    """A `make_trainer` for `Task.from_trainer`: the trainer on which a script calls `train()`."""

    path: Path  # absolute
    args: tuple[str, ...]
    cwd: Path  # absolute
    environment: Mapping[str, str]

    def __call__(self) -> Any:
        """Run the script up to `train()`; raises `InvalidInput` if it never calls that."""
        label = f"`{self.path.name}`"
        how = "ended"
        with self.surroundings(), training_by(_reach), contextlib.redirect_stdout(sys.stderr):
            try:
                runpy.run_path(str(self.path), run_name="__main__")
            except _Reached as reached:
                return reached.trainer
            except SystemExit as ended:
                how = f"exited ({ended.code})" if ended.code else "ended"
        raise InvalidInput(
            f"{label} {how} without calling train() of a transformers Trainer; where it trains by "
            "itself, say trainer=False (saturn run --no-trainer), and have it report its steps"
        )

    def surroundings(self) -> contextlib.AbstractContextManager[None]:
        """In this context the process is the script's: code that it has made finds its files."""
        return contextlib.nullcontext() if _at_work == [self] else as_program(self)

    def texts(self) -> list[str]:
        """The text of the script, and of the modules that it imports from beside itself."""
        return script_texts(self.path)

    def take_up(self) -> None:
        """Make this process, which trains nothing else, the script's for good."""
        _become(self, self.environment.keys() - _OF_DEVICES)
        set_aside_others()
        _at_work[:] = [self]


#: The script whose process this is now, if it is a script's.
_at_work: list[ScriptTrainer] = []
#: Variables that say which devices a rank has, and what its place among the ranks is.
_OF_DEVICES = {
    *LAUNCHER_VARIABLES,
    *("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES"),
}


def _become(script: ScriptTrainer, variables: Iterable[str]) -> None:
    sys.argv = [str(script.path), *script.args]
    sys.path.insert(0, str(script.path.parent))
    os.environ.update({name: script.environment[name] for name in variables})
    os.chdir(script.cwd)


@contextlib.contextmanager
def as_program(script: ScriptTrainer) -> Iterator[None]:
    """Within this context arguments, directory, environment, path and modules are the script's."""
    before = (sys.argv, list(sys.path), Path.cwd(), dict(os.environ))
    outer = _at_work[:]
    _become(script, script.environment)
    _at_work[:] = [script]
    try:
        with modules_of_program():
            yield
    finally:
        _at_work[:] = outer
        sys.argv, sys.path[:], cwd, environment = before
        os.chdir(cwd)
        for name in script.environment:
            if name in environment:
                os.environ[name] = environment[name]
            else:
                del os.environ[name]


@contextlib.contextmanager
def training_by(train: Callable[..., Any]) -> Iterator[None]:
    """Within this context `train` replaces every trainer's method; it gets the trainer first."""
    from transformers import Trainer

    before = Trainer.train
    Trainer.train = train  # type: ignore[method-assign]
    try:
        yield
    finally:
        Trainer.train = before  # type: ignore[method-assign]


def _reach(
    trainer: Any,
    resume_from_checkpoint: Any = None,
    trial: Any = None,
    ignore_keys_for_eval: Any = None,
    **kwargs: Any,
) -> NoReturn:
    asked = {"trial": trial, "ignore_keys_for_eval": ignore_keys_for_eval, **kwargs}
    if given := [name for name, value in asked.items() if value is not None]:
        raise InvalidInput(
            f"it calls train({given[0]}={asked[given[0]]!r}), which Saturn would not heed: leave "
            "that out"
        )
    if resume_from_checkpoint:
        raise InvalidInput(
            f"it calls train(resume_from_checkpoint={resume_from_checkpoint!r}); Saturn keeps the "
            "checkpoints, and a task begins at its first step: leave that out"
        )
    raise _Reached(trainer)
