"""Names of tasks with a common prefix, so that a run can have the tasks of several programs."""

from __future__ import annotations

import re
from collections.abc import Iterable

from saturn.errors import InvalidInput
from saturn.plain.names import SAFE_RULE, is_path_safe
from saturn.tasks.task import Task


def prefixed(tasks: Iterable[Task], prefix: str) -> list[Task]:
    """The tasks themselves, each with `prefix-` before its name.

    Tasks among them that come after one another still do. Raises `InvalidInput` if a name is not
    safe in a path.
    """
    tasks = list(tasks)
    names = {task.name: f"{prefix}-{task.name}" for task in tasks}
    for name in names.values():
        check_name(name)
    for task in tasks:
        task.name = names[task.name]
        task.after = [names.get(name, name) for name in task.after]
    return tasks


def check_name(task: str) -> None:
    """Raise `InvalidInput` if no task can have this name."""
    if not is_path_safe(task):
        raise InvalidInput(f"a task would be called {task!r}; it must be {SAFE_RULE}")


def safe(name: str) -> str:
    """The name with all that is not safe in a path replaced."""
    return re.sub(r"[^A-Za-z0-9._=+-]+", "_", name).lstrip("._=+-")[:100]
