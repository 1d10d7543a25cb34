"""The trainer that a script makes: the script runs up to its call of `train()`.

The script runs in this process as `python script.py ARGS` would. It ends at its first call of
`train()` on a `transformers.Trainer`, or on a subclass. Everything that it has made by then stays
alive with the trainer. Its output goes to standard error.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from saturn.errors import InvalidInput


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
        with as_program(self), training_by(_reach), contextlib.redirect_stdout(sys.stderr):
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


@contextlib.contextmanager
def as_program(script: ScriptTrainer) -> Iterator[None]:
    """Within this context, arguments, directory, environment and path are the script's."""
    before = (sys.argv, list(sys.path), Path.cwd(), dict(os.environ))
    sys.argv = [str(script.path), *script.args]
    sys.path.insert(0, str(script.path.parent))
    os.environ.update(script.environment)
    os.chdir(script.cwd)
    try:
        yield
    finally:
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
