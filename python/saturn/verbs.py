"""Verbs of the `saturn` program that Python carries out: `python -m saturn.verbs VERB JSON`.

The program has read the command line, and passes it as one piece of JSON. Data goes to standard
output, messages to standard error. Exit codes are the program's.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from saturn import native
from saturn.errors import (
    InvalidInput,
    RunFailed,
    RunInterrupted,
    SaturnError,
)
from saturn.plain.say import say, say_if_long
from saturn.pool_verbs import join_pool, read_sweep, run_shell, submit_sweep
from saturn.runs import in_pool, joined, serving
from saturn.runs.outlook import outlook
from saturn.runs.result import RunResult
from saturn.runs.run import orchestrate, resume, search
from saturn.runs.showing import (
    print_ranking,
    print_result,
    result_of,
    show,
    teller,
    values,
)
from saturn.sweeps import sweep
from saturn.tasks.prefixes import safe
from saturn.tasks.task import Task

_OK, _BAD_INPUT = 0, 2
#: At most this many names of tasks are shown in a line.
_SHOWN = 5


def run(asked: Mapping[str, Any]) -> int:
    """Train one script."""
    path, *args = asked["script"]
    # A script with a trainer runs here, up to its training.
    with say_if_long(f"making the task of {path}"):
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
    found = read_sweep(Path(asked["file"]))
    start = asked["start"]
    if asked["list"]:
        (_list if found.search is None else _list_search)(found, as_json=start["json"])
        return _OK
    if found.search is None:
        return _train(found.tasks, found.run, start, safe(Path(asked["file"]).stem))
    options = _options(found.run, start)
    return show(partial(found.search.train, **options), teller(start, with_parameters=True))


def serve_pool(asked: Mapping[str, Any]) -> int:
    """Drive the pool until it is closed or stopped."""
    names = ("devices", "device_memory", "wait", "share", "shares", "quotas")
    options = {name: asked[name] for name in names}
    run = serving.serve(**options)
    if joined.current() is not None:
        say("saturn submit and the name `pool` mean the pool that you joined: saturn join --leave")
    say(
        f"this is the pool, {run.run_dir}; Ctrl-C stops it, and saturn serve takes it up again\n"
        "to add a sweep, in another terminal: saturn submit SWEEP.toml\n"
        "to see it in a browser: saturn web"
    )
    return show(run.wait, print_result if asked["json"] else None)


def table(asked: Mapping[str, Any]) -> int:
    """Print the tasks of a run as CSV, the best first."""
    sys.stdout.write(result_of(Path(asked["run_dir"])).csv())
    return _OK


def problem(asked: Mapping[str, Any]) -> int:
    """Print what is known of a sweep as a planning problem."""
    path = Path(asked["file"])
    found = read_sweep(path)
    if found.search is not None:
        raise InvalidInput(
            f"{path}: its tasks are suggested while it runs, each by what earlier tasks reported, "
            "so there is no plan of them beforehand. What it draws from: saturn sweep "
            f"{shlex.quote(str(path))} --list"
        )
    if found.run.get("cluster") is not None and asked["devices"] is None:
        raise InvalidInput(
            f"{path}: `[run]` has `cluster`, and which devices a cluster has is known only once a "
            "run begins on it: `saturn sweep` then makes the plan. A plan for devices of this "
            f"machine: saturn plan {shlex.quote(str(path))} --devices N"
        )
    names = ("techniques", "devices", "device_memory", "host_memory")
    options = {name: found.run[name] for name in names if name in found.run}
    if asked["devices"] is not None:
        options["devices"] = asked["devices"]
    profile = found.run.get("profile")
    known = outlook(found.tasks, profile=profile, **options)
    if known.unknown and asked["trials"]:
        unknown = [task for task in found.tasks if task.name in known.unknown]
        place = {name: found.run[name] for name in ("runs_dir",) if name in found.run}
        tried = search(unknown, raise_on_failure=False, **options, **place)
        for outcome in tried.tasks:
            if outcome.error is not None:
                say(f"{outcome.name}: {outcome.error}")
        known = outlook(found.tasks, profile=profile, **options)
    _tell_unknown(path, len(found.tasks), known.unknown)
    if not known.problem["tasks"]:
        return _BAD_INPUT
    if known.num_estimated:
        say(f"{known.num_estimated} of the strategies are estimated, the others measured")
    print(json.dumps(known.problem))
    return _OK


def _train(
    tasks: list[Task], of_file: Mapping[str, Any], start: Mapping[str, Any], name: str | None = None
) -> int:
    """Train tasks; if in a pool, their names there begin with `name`."""
    options = _options(of_file, start)
    wanted = options.pop("pool", None)

    def train() -> RunResult:
        found = None if wanted is None else in_pool.trained(wanted, tasks, options, say, name)
        return orchestrate(tasks, **options) if found is None else found

    return show(train, teller(start))


def _options(of_file: Mapping[str, Any], start: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of `saturn.orchestrate`; the command line overrides the file."""
    options = {**of_file}
    for option, given in (
        ("name", start["run_name"]),
        ("devices", start["devices"]),
        ("device_memory", start["device_memory"]),
        ("runs_dir", start["runs_dir"]),
        *start["cluster"].items(),
    ):
        if given is not None:
            options[option] = given
    if start["wait"]:
        options["wait"] = True
    return options


def resume_run(asked: Mapping[str, Any]) -> int:
    """Resume a run that has a tuner, or on a cluster."""
    size = asked["device_memory_bytes"]
    run = resume(
        asked["run_dir"],
        device_memory="none" if size == 0 else size,
        allow_other_hardware=asked["allow_other_hardware"],
        wait=asked["wait"],
        **asked["cluster"],
    )
    if not asked["json"]:
        return show(run.wait, partial(print_ranking, with_parameters=run._suggests))
    try:
        return show(run.wait, _print_report)
    except RunInterrupted:
        # As the program does for a run that it resumes by itself: the report of what there is.
        print(native.report(run.run_dir))
        raise


def _print_report(result: RunResult) -> None:
    print((result.run_dir / "report.json").read_text())


def _list(found: sweep.Sweep, *, as_json: bool) -> None:
    commands: Sequence[str | None] = found.commands or [None] * len(found.tasks)
    for task, parameters, command in zip(found.tasks, found.parameters, commands, strict=True):
        if as_json:
            row = {"version": 1, "task": task.name, "parameters": parameters, "command": command}
            print(json.dumps(row))
        else:
            print(f"{task.name}  {values(parameters) if command is None else command}".rstrip())


def _list_search(found: sweep.Sweep, *, as_json: bool) -> None:
    """Print a search's spaces, and its first task, the only one that is known beforehand."""
    search = found.search
    assert search is not None
    first = search.first()
    command = None if found.command_of is None else found.command_of(first)
    if as_json:
        told = {"trials": search.trials, "sampler": search.sampler, "seed": search.seed}
        space = {name: asdict(one) for name, one in search.space.items()}
        row = {"task": "trial-0", "parameters": first, "command": command}
        print(json.dumps({"version": 1, "search": {**told, "space": space}, "first": row}))
        return
    print(
        f"{search.trials} tasks, drawn while it runs by {search.sampler} with seed {search.seed}:"
    )
    width = max(map(len, search.space))
    for name, one in search.space.items():
        print(f"  {name:{width}}  {one}")
    print(f"the first:\n  trial-0  {values(first) if command is None else command}")


def _tell_unknown(path: Path, num_tasks: int, unknown: list[str]) -> None:
    if not unknown:
        return
    shown = ", ".join(f"`{name}`" for name in unknown[:_SHOWN])
    more = f" and {len(unknown) - _SHOWN} more" if len(unknown) > _SHOWN else ""
    left_out = "" if len(unknown) == num_tasks else ", and not in this plan"
    say(
        f"{len(unknown)} of {num_tasks} tasks are not measured here yet{left_out}: {shown}{more}\n"
        f"to measure them first, a few steps each: saturn plan {shlex.quote(str(path))} --trials"
    )


_VERBS: dict[str, Callable[[Mapping[str, Any]], int]] = {
    "run": run,
    "sweep": run_sweep,
    "resume": resume_run,
    "table": table,
    "problem": problem,
    "serve": serve_pool,
    "join": join_pool,
    "submit": submit_sweep,
    "shell": run_shell,
}


def main() -> int:
    """Carry out the verb of the program's arguments; returns the exit code."""
    verb, asked = sys.argv[1:]
    try:
        code = _VERBS[verb](json.loads(asked))
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of standard output (`| head`) has enough. What Python flushes at its end must
        # not raise again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _OK
    except SaturnError as error:
        say(f"error: {error}")
        return error.exit_code
    except RunInterrupted as error:
        return error.exit_code  # the command to resume has been printed
    except KeyboardInterrupt:
        return RunInterrupted.exit_code  # interrupted before there was a run to resume
    except (ValueError, TypeError, FileNotFoundError) as error:
        say(f"error: {error}")
        return _BAD_INPUT
    except OSError as error:
        say(f"error: {error}")
        return RunFailed.exit_code


if __name__ == "__main__":
    sys.exit(main())
