"""Check that tasks with different parameters also train differently.

A function that ignores a parameter makes equal tasks under several names; a table of them would
compare a configuration with itself. Here tasks are equal if they are of the same kind, have equal
functions, hyper-parameters and seeds, may use the same devices and techniques, and continue the
same task, if any. Names, priorities and directories to save to don't change training, so they don't
count.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from saturn.scripts.command import ScriptDefinition
from saturn.tasks.content import Content
from saturn.tasks.task import Task


def refuse_equal(
    tasks: Iterable[Task], parameters: Iterable[Mapping[str, Any]], function: str
) -> None:
    """Refuse two tasks that would train the same; raises `ValueError`, which names both."""
    buffers: dict[int, tuple[Any, bytes]] = {}
    first: dict[bytes, tuple[Task, Mapping[str, Any]]] = {}
    for task, given in zip(tasks, parameters, strict=True):
        other, given_other = first.setdefault(_digest(task, buffers), (task, given))
        if other is not task:
            differing = sorted(
                name
                for name in given.keys() | given_other.keys()
                if given.get(name) != given_other.get(name)
            )
            names = ", ".join(f"`{name}`" for name in differing)
            raise ValueError(
                f"tasks `{other.name}` and `{task.name}` would train the same: {function} makes "
                f"them equal, so {names} {'do' if len(differing) > 1 else 'does'} not reach the "
                "task; have the function use it, in HParams, seed or get_model"
            )


def _digest(task: Task, buffers: dict[int, tuple[Any, bytes]]) -> bytes:
    definition = task.definition()
    if isinstance(definition, ScriptDefinition):
        unnamed: Any = replace(definition, name="")
    else:
        unnamed = replace(definition, name="", save_dir=None)
    compared = (unnamed, task.gpu_range, task.techniques, task.continue_from)
    try:
        return Content(buffers).digest(compared)
    except RecursionError:
        # The value is nested too deeply; equal tasks of one function mostly have equal pickles.
        return cloudpickle.dumps(compared)  # type: ignore[no-any-return]
