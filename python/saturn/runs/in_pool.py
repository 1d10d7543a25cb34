"""`orchestrate(…, pool="auto")`: a program's tasks train in the pool, and the program waits.

While a process drives a pool, the pool has the devices, so a run of its own would find none. The
tasks are in the pool under other names: each begins with the name of the run, or else of the
program. The result has the names that the program gave.
"""

from __future__ import annotations

import copy
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain, count, islice
from pathlib import Path
from typing import Any

from saturn.errors import InvalidInput, Refused, RunOver
from saturn.runs import pool
from saturn.runs.connecting import connect
from saturn.runs.result import RunResult
from saturn.runs.waiting import wait_or_leave
from saturn.tasks.prefixes import prefixed, safe
from saturn.tasks.task import Task
from saturn.tuning.pool import Pool

#: The only value of `pool`.
AUTO = "auto"
#: Keywords of `orchestrate` that are the program's own; all others are settings of the pool.
_OWN = frozenset({"name", "stopper", "raise_on_failure"})
#: Program names that don't tell one program from another.
_NAMELESS = frozenset({"", "c", "m", "ipykernel_launcher", "__main__"})
#: The most names that are tried. No task has such a name, but a sweep without tasks may have it.
_MOST_TRIES = 5


def trained(
    wanted: str,
    tasks: Iterable[Task],
    options: Mapping[str, Any],
    tell: Callable[[str], None],
    program: str | None = None,
) -> RunResult | None:
    """Train tasks in the pool that a process drives; None if there is none, which `tell` is told.

    `wanted` is the keyword `pool`; the other arguments are those of `orchestrated`. Raises
    `InvalidInput` unless `wanted` is "auto", and what `orchestrated` raises.
    """
    if wanted != AUTO:
        raise InvalidInput(f"pool is {wanted!r}; it must be {AUTO!r} or None")
    try:
        reached = connect()
    except RunOver:
        tell("no process drives a pool (saturn serve): the tasks train in a run of their own")
        return None
    return orchestrated(reached, tasks, options, tell, program)


def orchestrated(
    reached: Pool,
    tasks: Iterable[Task],
    options: Mapping[str, Any],
    tell: Callable[[str], None],
    program: str | None = None,
) -> RunResult:
    """Submit tasks to the pool, and wait until they have ended; returns their result.

    Args:
        reached: the pool.
        tasks: the tasks; each then has its `selected_strategy`.
        options: the given keywords of `orchestrate`.
        tell: gets lines for people.
        program: prefix of the tasks' names in the pool if `options` has no `name`; by default the
            name of this program.

    Raises `WaitingEnded` at Ctrl-C, after which the tasks go on, and what `wait_for` raises.
    """
    stopper = options.get("stopper")
    reached._raises = options.get("raise_on_failure", True)
    tasks = list(tasks)
    name = options.get("name")
    if name is not None:
        _submit(reached, tasks, name, stopper)
    else:
        name = _submitted(reached, tasks, program or _name_of_program(), stopper)
    unused = sorted(option for option in options if option not in _OWN)
    if unused:
        tell(f"not used, since the pool has its own: {', '.join(unused)}")
    names = {task: task.removeprefix(f"{name}-") for task in reached._directories}
    shown = "1 task, " if len(names) == 1 else f"{len(names)} tasks, "
    tell(
        f"submitted {shown}{name}-…, to the pool {reached.run_dir}; Ctrl-C ends the waiting, and "
        "the tasks go on"
    )
    result = wait_or_leave(
        reached,
        names,
        status_command=f"saturn status {pool.NAME}",
        cancel_command=None
        if stopper is None
        else f"saturn cancel {pool.NAME} {shlex.quote(name)}",
        tell=tell,
    )
    strategies = {outcome.name: outcome.strategy for outcome in result.tasks}
    for task in tasks:
        task.selected_strategy = strategies.get(task.name) or task.selected_strategy
    return result


def _submitted(reached: Pool, tasks: list[Task], program: str, stopper: Any) -> str:
    """Submit the tasks under a name that is free in the pool; returns that name.

    The name is the program's, with a number if the pool has such tasks already.
    """
    refusal: Refused | None = None
    taken = [task["name"] for task in reached.status()["tasks"]]
    free = filter(lambda name: not _is_taken(name, taken), _numbered(program))
    for name in islice(free, _MOST_TRIES):
        try:
            _submit(reached, tasks, name, stopper)
        except Refused as error:
            # Another program, or a sweep without tasks, has the name.
            if error.code != "name_taken":
                raise
            refusal = error
        else:
            return name
    assert refusal is not None
    raise refusal


def _submit(reached: Pool, tasks: list[Task], name: str, stopper: Any) -> None:
    # The program's own tasks keep their names.
    renamed = prefixed((copy.copy(task) for task in tasks), name)
    if stopper is None:
        reached.submit(renamed)
    else:
        reached.submit(renamed, stopper=stopper, name=name)


def _name_of_program() -> str:
    name = safe(Path(sys.argv[0]).stem) if sys.argv else ""
    return "orchestrate" if name in _NAMELESS else name


def _numbered(name: str) -> Iterator[str]:
    """The name, and then the name with 2, 3 and so on."""
    return chain([name], (f"{name}-{number}" for number in count(2)))


def _is_taken(name: str, tasks: Iterable[str]) -> bool:
    return any(task == name or task.startswith(f"{name}-") for task in tasks)
