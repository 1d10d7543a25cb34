"""How verbs of the `saturn` program show the result of a run: a ranking, or JSON for programs."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from saturn import native
from saturn.errors import RunInterrupted, TasksFailed, WaitingEnded
from saturn.plain.measures import plain
from saturn.runs.result import RunResult

_OK = 0


def result_of(run_dir: Path) -> RunResult:
    """The result of a run, as far as it has come."""
    return RunResult.from_report(json.loads(native.report(run_dir)), run_dir)


def show(train: Callable[[], RunResult], tell: Callable[[RunResult], None] | None) -> int:
    """Train, and show the result, even if tasks failed.

    Of a run that was stopped only programs are told: it has no ranking yet, and the command that
    resumes it has been printed.
    """
    failure: TasksFailed | RunInterrupted | None = None
    try:
        result = train()
    except TasksFailed as error:
        result, failure = error.result, error
    except WaitingEnded:
        raise  # its run goes on, and has other tasks too
    except RunInterrupted as error:
        if tell is not print_result:
            raise
        result, failure = result_of(Path(error.run_dir)), error
    if tell is not None:
        tell(result)
    if failure is not None:
        raise failure
    return _OK


def teller(
    start: Mapping[str, Any], *, with_parameters: bool = False
) -> Callable[[RunResult], None]:
    """The function that prints the result, as the options of the start ask."""
    return (
        print_result if start["json"] else partial(print_ranking, with_parameters=with_parameters)
    )


def print_result(result: RunResult) -> None:
    """Print the result as JSON."""
    found = plain({"version": 1, **asdict(result)})
    print(json.dumps(found, default=str, allow_nan=False))


def print_ranking(result: RunResult, *, with_parameters: bool) -> None:
    """Print the tasks, best first; with parameters if the names don't show them.

    Nothing is printed for a single task, which has no rank.
    """
    if len(result.tasks) == 1:
        return
    tasks = {task.name: task for task in result.tasks}
    for row in result.rows():
        task = tasks[row["task"]]
        if task.value is not None:
            more = f"  {values(task.parameters)}" if with_parameters else ""
            print(f"{task.value:<12.6g}{task.name}{more}")


def values(parameters: Mapping[str, Any]) -> str:
    """The values that distinguish a task, in one line."""
    return "  ".join(f"{key}={value}" for key, value in parameters.items())
