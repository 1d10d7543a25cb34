"""`search` and `orchestrate`: from tasks to a run directory, a run, and its result."""

from __future__ import annotations

import json
import math
import os
import shlex
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from saturn import library, native, profiles, run_directory
from saturn.errors import InvalidInput, RunInterrupted, SaturnError, TasksFailed
from saturn.library import Entry
from saturn.pickling import dump_task
from saturn.preload import functions_of, preload_entries
from saturn.profile_key import profile_key
from saturn.profiles import Profile
from saturn.result import RunResult, strategies_by_task, trial_of
from saturn.sizes import parse_size
from saturn.task import HParams, Task

#: Beyond this no count means anything.
_LARGEST = 2**31 - 1

PathLike = str | os.PathLike[str]


def search(
    tasks: Iterable[Task],
    techniques: Iterable[str] | None = None,
    log: bool = True,
    *,
    devices: int | None = None,
    device_memory: int | str | None = None,
    name: str | None = None,
    runs_dir: PathLike = "saturn_runs",
    profile: PathLike | None = None,
    warmup_steps: int = 1,
    timed_steps: int = 3,
) -> RunResult:
    """Measure every task under every technique and device count; fills `task.strategies`.

    Args:
        tasks: the workload.
        techniques: names in the library; all of it by default.
        log: show what happens on standard error.
        devices: how many GPUs, or CPU slots where there is no GPU; all by default.
        device_memory: what each may hold, as bytes or a size such as "600MB" or "2GiB"; enforced,
            on CPU slots too. No limit but the device's own by default.
        name: the run's name, unique in `runs_dir`; made from the time by default.
        runs_dir: where the run directory goes.
        profile: directory of an earlier run, or a file like its `profile.json`: trials of tasks
            that perform alike are reused, if they ran on the same type of device.
        warmup_steps: first steps of a trial, not timed.
        timed_steps: steps that the median is over, at least two.

    Raises `InvalidInput` (nothing was started), `TasksFailed`, `RunInterrupted`, `RunFailed`.
    """
    return _run(
        "search",
        _checked_tasks(tasks),
        techniques,
        log,
        devices=devices,
        device_memory=device_memory,
        name=name,
        runs_dir=runs_dir,
        profile=profile,
        warmup_steps=warmup_steps,
        timed_steps=timed_steps,
    )


def orchestrate(
    tasks: Iterable[Task],
    interval: float = 1000.0,
    log: bool = True,
    *,
    techniques: Iterable[str] | None = None,
    devices: int | None = None,
    device_memory: int | str | None = None,
    name: str | None = None,
    runs_dir: PathLike = "saturn_runs",
    profile: PathLike | None = None,
    checkpoint_every_s: float = 30.0,
    stall_s: float = 600.0,
    solver_time_limit_s: float = 2.0,
    max_switches: int = 1,
    seed: int = 0,
    warmup_steps: int = 1,
    timed_steps: int = 3,
) -> RunResult:
    """Plan the workload and train it; returns what was realised.

    Tasks that `search` has measured are not measured again.

    Args:
        tasks: the workload.
        interval: the longest time between two re-plans, seconds.
        log: show what happens on standard error.
        techniques: names in the library; all of it by default.
        devices: how many GPUs, or CPU slots where there is no GPU; all by default.
        device_memory: what each may hold, as bytes or a size such as "600MB" or "2GiB"; enforced,
            on CPU slots too. No limit but the device's own by default.
        name: the run's name, unique in `runs_dir`; made from the time by default.
        runs_dir: where the run directory goes.
        profile: directory of an earlier run, or a file like its `profile.json`: trials of tasks
            that perform alike are reused, if they ran on the same type of device.
        checkpoint_every_s: seconds of training between two checkpoints of a task.
        stall_s: seconds of silence after which a task's workers count as hung and are restarted
            from the last checkpoint; more than its longest step takes. Building, loading and saving
            are no silence.
        solver_time_limit_s: seconds for one solve.
        max_switches: how often a task may be planned to change its technique, device count or place
            in mid-run, where trials or checkpoints have shown what that costs; a plan with such
            switches must end 2% sooner than the best without. 0 plans none.
        seed: of the solver; the tasks have their own.
        warmup_steps: first steps of a trial, not timed.
        timed_steps: steps that the median is over, at least two.

    Raises `InvalidInput` (nothing was started), `TasksFailed` once everything has ended,
    `RunInterrupted`, `RunFailed`.
    """
    return _run(
        "orchestrate",
        _checked_tasks(tasks),
        techniques,
        log,
        devices=devices,
        device_memory=device_memory,
        name=name,
        runs_dir=runs_dir,
        profile=profile,
        interval_s=interval,
        checkpoint_every_s=checkpoint_every_s,
        stall_s=stall_s,
        solver_time_limit_s=solver_time_limit_s,
        max_switches=max_switches,
        seed=seed,
        warmup_steps=warmup_steps,
        timed_steps=timed_steps,
    )


def _run(
    mode: str,
    tasks: Sequence[Task],
    techniques: Iterable[str] | None,
    log: bool,
    *,
    devices: int | None,
    device_memory: int | str | None,
    name: str | None,
    runs_dir: PathLike,
    profile: PathLike | None,
    warmup_steps: int,
    timed_steps: int,
    interval_s: float = 1000.0,
    checkpoint_every_s: float = 30.0,
    stall_s: float = 600.0,
    solver_time_limit_s: float = 2.0,
    max_switches: int = 1,
    seed: int = 0,
) -> RunResult:
    _check_whole("devices", devices, least=1)
    _check_whole("warmup_steps", warmup_steps, least=0)
    _check_whole("timed_steps", timed_steps, least=2)
    _check_whole("max_switches", max_switches, least=0)
    _check_whole("seed", seed, least=0)
    _check_seconds("interval", interval_s)
    _check_seconds("checkpoint_every_s", checkpoint_every_s)
    _check_seconds("stall_s", stall_s)
    _check_seconds("solver_time_limit_s", solver_time_limit_s)
    device_memory_bytes = parse_size("device_memory", device_memory)
    entries = library.select(techniques)
    # Everything that can be refused is refused before anything is on disk.
    pickles = [dump_task(task.definition()) for task in tasks]
    keys = [profile_key(task) for task in tasks]
    reused = Profile([]) if profile is None else profiles.load(profile)
    run_dir = run_directory.create(runs_dir, name, mode)
    directories = run_directory.write_tasks(run_dir, tasks, pickles)
    request = {
        "version": 1,
        "run_dir": str(run_dir),
        "mode": mode,
        "python": sys.executable,
        "python_path": [path or str(Path.cwd()) for path in sys.path],
        "cwd": str(Path.cwd()),
        "preload": _preload(tasks, pickles),
        "devices": devices,
        "interval_s": float(interval_s),
        "checkpoint_every_s": float(checkpoint_every_s),
        "stall_s": float(stall_s),
        "solver_time_limit_s": float(solver_time_limit_s),
        "max_switches": max_switches,
        "seed": seed,
        "warmup_steps": warmup_steps,
        "timed_steps": timed_steps,
        "techniques": run_directory.write_techniques(run_dir, entries),
        "tasks": [
            {
                "name": task.name,
                "dir": directory,
                **_length(task.hparams),
                "gpu_range": task.gpu_range,
                "profile_key": key,
                "measured": _measured(task, key, reused, entries),
            }
            for task, directory, key in zip(tasks, directories, keys, strict=True)
        ],
    }
    if device_memory_bytes is not None:
        request["device_memory_bytes"] = device_memory_bytes
    try:
        text = native.run(
            json.dumps(request, allow_nan=False),
            _write if log else None,
            is_terminal=log and sys.stderr.isatty(),
        )
    except SaturnError:
        run_directory.remove_unbegun(run_dir)
        raise
    report = json.loads(text)
    return _conclude(report, tasks, keys, run_dir)


def _conclude(
    report: dict[str, Any], tasks: Sequence[Task], keys: Sequence[str], run_dir: Path
) -> RunResult:
    """Hand what was found to the tasks; returns the result, or raises what befell the run."""
    result = RunResult.from_report(report, run_dir)
    found = strategies_by_task(report)
    for index, (task, key) in enumerate(zip(tasks, keys, strict=True)):
        if found[index]:
            task.strategies = found[index]
            task._measured_as = key
        outcome = result.tasks[index]
        task.selected_strategy = outcome.strategy or task.selected_strategy
    if report["status"] == "interrupted":
        command = f"saturn resume {shlex.quote(str(run_dir))}"
        raise RunInterrupted(
            f"stopped at checkpoints; to go on: {command}",
            run_dir=str(run_dir),
            resume_command=command,
        )
    failed = [task for task in result.tasks if task.status == "failed"]
    if failed:
        lines = [f"task `{task.name}`: {task.error}" for task in failed]
        raise TasksFailed(
            f"{len(failed)} of {len(result.tasks)} tasks failed\n" + "\n".join(lines), result
        )
    return result


def _checked_tasks(tasks: Iterable[Task]) -> list[Task]:
    if isinstance(tasks, Task):
        raise TypeError("tasks is one Task; it must be a list of them")
    workload = list(tasks)
    if not workload:
        raise InvalidInput("tasks is empty; there is nothing to do")
    names: dict[str, int] = {}
    for index, task in enumerate(workload):
        if not isinstance(task, Task):
            kind = type(task).__name__
            raise TypeError(f"tasks holds a {kind}; it must hold saturn.Task objects")
        if task.name in names:
            raise InvalidInput(
                f"tasks {names[task.name]} and {index} are both called `{task.name}`; names must "
                "be unique within a run"
            )
        names[task.name] = index
    return workload


def _length(hparams: HParams) -> dict[str, int | None]:
    """How long a task trains: in steps, or in epochs, which become steps once one is counted."""
    batches_a_step = hparams.gradient_accumulation_steps
    length: dict[str, int | None] = {"steps": None, "epochs": hparams.epochs}
    if hparams.batch_count is not None:
        length["steps"] = math.ceil(hparams.batch_count / batches_a_step)
    if batches_a_step > 1:
        length["batches_a_step"] = batches_a_step
    return length


def _measured(
    task: Task, key: str, reused: Profile, entries: Sequence[Entry]
) -> list[dict[str, Any]]:
    """Trials that need not be run again: the task's own, else those of an earlier run."""
    trials = (
        [trial_of(task.name, strategy) for strategy in task.strategies]
        if task._measured_as == key
        else reused.of(task.name, key)
    )
    techniques = {entry.name for entry in entries}
    return [trial for trial in trials if trial["technique"] in techniques]


def _preload(tasks: Sequence[Task], pickles: Sequence[bytes]) -> list[str]:
    functions = [
        function
        for task in tasks
        for function in functions_of(task.get_model, task.get_dataloader, task.loss_function)
    ]
    return preload_entries(pickles, functions)


def _write(text: str) -> None:
    # Looked up each time: notebooks put their own stream there.
    sys.stderr.write(text)
    sys.stderr.flush()


def _check_whole(field: str, value: int | None, *, least: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be a whole number")
    if value < least:
        raise InvalidInput(f"{field} is {value}; it must be at least {least}")
    if value > _LARGEST:
        raise InvalidInput(f"{field} is {value}; it must be at most {_LARGEST}")


def _check_seconds(field: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be a number of seconds")
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{field} is {value}; it must be a positive number of seconds")
