"""Pickle what travels to the workers, and say clearly what can't be pickled.

cloudpickle takes closures, lambdas and classes of `__main__`. It can't take a lock, a generator or
an open file. The error then names the task, the function, and the variable that holds the object.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from saturn.errors import NotPicklable
from saturn.scripts.command import ScriptDefinition
from saturn.tasks.definition import TaskDefinition


def dump_task(definition: TaskDefinition | ScriptDefinition) -> bytes:
    """The pickled definition; raises `NotPicklable`, which names the part that can't travel."""
    if isinstance(definition, ScriptDefinition):
        return definition.dumps()  # a script's definition is plain data
    try:
        return definition.dumps()
    except Exception as error:
        for part, value in _parts(definition):
            dump(value, f"task `{definition.name}`: {part}")
        raise NotPicklable(
            f"task `{definition.name}` can't be sent to a worker process: {error}"
        ) from error


def dump(value: Any, what: str) -> bytes:
    """The pickled value; raises `NotPicklable`, whose message begins with `what`."""
    try:
        return cloudpickle.dumps(value)  # type: ignore[no-any-return]
    except Exception as error:
        blame = _blame(value)
        if blame is None:
            text = f"{what} can't be sent to a worker process: {error}"
        else:
            variable, kind = blame
            text = (
                f"{what} can't be sent to a worker process: its variable `{variable}` holds a "
                f"{kind}, which can't be pickled; make it inside the function instead"
            )
        raise NotPicklable(text) from error


def _parts(definition: TaskDefinition) -> Iterator[tuple[str, Any]]:
    yield "get_model", definition.get_model
    yield "get_dataloader", definition.get_dataloader
    yield "loss_function", definition.loss_function
    yield "loss_weight", definition.loss_weight
    yield "training_step", definition.training_step
    yield "make_trainer", getattr(definition.step_loss, "make_trainer", None)
    yield "optimizer_cls", definition.optimizer_cls
    yield "evaluate", definition.evaluate
    for key, value in definition.kwargs.items():
        yield f"hparams' `{key}`", value
    for key, value in definition.hints.items():
        yield f"hint `{key}`", value


def _blame(value: Any) -> tuple[str, str] | None:
    """(variable, type) of the first object that a function refers to and can't be pickled."""
    seen: set[int] = set()
    pending: list[tuple[str, Any]] = [("", value)]
    while pending:
        name, held = pending.pop(0)
        if id(held) in seen or _is_picklable(held):
            continue
        seen.add(id(held))
        inner = list(_references(held))
        if name and all(_is_picklable(reference) for _, reference in inner):
            return name, type(held).__name__
        pending.extend(inner)
    return None


def _references(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, functools.partial):
        yield "func", value.func
        for number, argument in enumerate(value.args):
            yield f"argument {number}", argument
        yield from value.keywords.items()
    elif inspect.ismethod(value):
        yield "self", value.__self__
    elif inspect.isfunction(value):
        variables = inspect.getclosurevars(value)
        yield from variables.nonlocals.items()
        yield from variables.globals.items()
        for number, default in enumerate(value.__defaults__ or ()):
            yield f"default {number}", default
    elif isinstance(value, dict):
        yield from ((str(key), inner) for key, inner in value.items())
    elif isinstance(value, list | tuple | set):
        yield from ((f"element {number}", inner) for number, inner in enumerate(value))
    elif not isinstance(value, type):
        yield from getattr(value, "__dict__", {}).items()


def _is_picklable(value: Any) -> bool:
    try:
        cloudpickle.dumps(value)
    except Exception:
        return False
    return True
