"""Verbs of the `saturn` program that are done in Python: `python -m saturn.verbs VERB JSON`.

The program has read the command line and hands it over as one piece of JSON. Data goes to standard
output, talk to standard error; exit codes are the program's.
"""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from saturn import native, sweep
from saturn.errors import RunInterrupted, SaturnError
from saturn.outlook import outlook
from saturn.result import RunResult
from saturn.run import orchestrate, resume, search
from saturn.task import Task

_OK, _BAD_INPUT = 0, 2
#: At most so many names of tasks in a line.
_SHOWN = 5


def run(asked: Mapping[str, Any]) -> int:
    """Train one script."""
    path, *args = asked["script"]
    task = Task.script(
        path,
        args,
        name=Path(path).stem,
        steps=asked["steps"],
        gpu_range=asked["gpus"] or None,
        resume=False if asked["no_resume"] else asked["resume"],
        trainer=True if asked["trainer"] else False if asked["no_trainer"] else None,
    )
    return _train([task], {}, asked["start"])


def run_sweep(asked: Mapping[str, Any]) -> int:
    """Train a sweep, or list its tasks."""
    found = sweep.read(Path(asked["file"]))
    if asked["list"]:
        _list(found, as_json=asked["start"]["json"])
        return _OK
    return _train(found.tasks, found.run, asked["start"])


def table(asked: Mapping[str, Any]) -> int:
    """Print the tasks of a run as CSV, the best first."""
    run_dir = Path(asked["run_dir"])
    sys.stdout.write(RunResult.from_report(json.loads(native.report(run_dir)), run_dir).csv())
    return _OK


def problem(asked: Mapping[str, Any]) -> int:
    """Print what is known of a sweep as a planning problem."""
    path = Path(asked["file"])
    found = sweep.read(path)
    names = ("techniques", "devices", "device_memory", "host_memory")
    options = {name: found.run[name] for name in names if name in found.run}
    if asked["devices"] is not None:
        options["devices"] = asked["devices"]
    profile = found.run.get("profile")
    known = outlook(found.tasks, profile=profile, **options)
    if known.unknown and asked["trials"]:
        unknown = [task for task in found.tasks if task.name in known.unknown]
        place = {name: found.run[name] for name in ("runs_dir",) if name in found.run}
        search(unknown, **options, **place)
        known = outlook(found.tasks, profile=profile, **options)
    _tell_unknown(path, len(found.tasks), known.unknown)
    if not known.problem["tasks"]:
        return _BAD_INPUT
    if known.num_estimated:
        _say(f"{known.num_estimated} of the strategies are estimated, the others measured")
    print(json.dumps(known.problem))
    return _OK


def _train(tasks: list[Task], of_file: Mapping[str, Any], start: Mapping[str, Any]) -> int:
    options = {**of_file}
    for option, given in (
        ("name", start["run_name"]),
        ("devices", start["devices"]),
        ("device_memory", start["device_memory"]),
        ("runs_dir", start["runs_dir"]),
    ):
        if given is not None:
            options[option] = given
    result = orchestrate(tasks, **options)
    if start["json"]:
        _print_result(result)
    elif len(tasks) > 1:
        _rank(result)
    return _OK


def resume_run(asked: Mapping[str, Any]) -> int:
    """Go on with a run that has a tuner, or on a cluster."""
    size = asked["device_memory_bytes"]
    run = resume(
        asked["run_dir"],
        device_memory="none" if size == 0 else size,
        allow_other_hardware=asked["allow_other_hardware"],
        cluster=asked["cluster"],
        nodes=asked["nodes"],
        gpus_per_node=asked["gpus_per_node"],
        network_interface=asked["network_interface"],
    )
    result = run.wait()
    if asked["json"]:
        print((result.run_dir / "report.json").read_text())
    return _OK


def _print_result(result: RunResult) -> None:
    print(json.dumps({"version": 1, **asdict(result)}, default=str))


def _rank(result: RunResult) -> None:
    """The tasks by how well they did, the best first."""
    values = {task.name: task.value for task in result.tasks}
    for row in result.rows():
        value = values[row["task"]]
        if value is not None:
            print(f"{value:<12.6g}{row['task']}")


def _list(found: sweep.Sweep, *, as_json: bool) -> None:
    for task, parameters in zip(found.tasks, found.parameters, strict=True):
        if as_json:
            print(json.dumps({"version": 1, "task": task.name, "parameters": parameters}))
        else:
            values = "  ".join(f"{key}={value}" for key, value in parameters.items())
            print(f"{task.name}  {values}".rstrip())


def _tell_unknown(path: Path, num_tasks: int, unknown: list[str]) -> None:
    if not unknown:
        return
    shown = ", ".join(f"`{name}`" for name in unknown[:_SHOWN])
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    left_out = "" if len(unknown) == num_tasks else ", and not in this plan"
    _say(
        f"{len(unknown)} of {num_tasks} tasks are not measured here yet{left_out}: {shown}{more}\n"
        f"to measure them first, a few steps each: saturn plan {shlex.quote(str(path))} --trials"
    )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


_VERBS: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "run": run,
    "sweep": run_sweep,
    "resume": resume_run,
    "table": table,
    "problem": problem,
}


def main() -> int:
    """Do what the arguments say; returns the exit code."""
    verb, asked = sys.argv[1:]
    try:
        return _VERBS[verb](json.loads(asked))
    except SaturnError as error:
        _say(f"error: {error}")
        return error.exit_code
    except RunInterrupted as error:
        return error.exit_code  # how to go on has been said
    except (ValueError, TypeError, FileNotFoundError) as error:
        _say(f"error: {error}")
        return _BAD_INPUT


if __name__ == "__main__":
    sys.exit(main())
