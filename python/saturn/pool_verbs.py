"""The verbs `submit`, `join` and `shell` of the `saturn` program (`saturn.verbs`)."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from saturn import native
from saturn.errors import InvalidInput, Refused
from saturn.plain.say import say, say_if_long
from saturn.runs import connecting, held_place, joined, pool
from saturn.runs.live import Run
from saturn.runs.showing import show, teller
from saturn.runs.waiting import wait_or_leave
from saturn.sweeps import sweep
from saturn.sweeps.search import Search
from saturn.tasks.due import seconds_of
from saturn.tasks.prefixes import check_name, prefixed, safe
from saturn.tuning.pool import Pool, run_or_pool

_OK = 0


def join_pool(asked: Mapping[str, Any]) -> int:
    """Join another person's pool, or leave it."""
    if asked["door"] is None:
        directory = joined.leave()
        if asked["json"]:
            print(json.dumps({"version": 1, "directory": str(directory)}))
        say(f"your tasks there stop at checkpoints; their files stay in {directory}")
        return _OK
    found = joined.join(asked["door"], say)
    if asked["json"]:
        known = {"directory": str(found.directory), "is_driven": found.is_driven}
        print(json.dumps({"version": 1, **known}))
    say(
        f"your tasks and their results will be in {found.directory}\n"
        "to add a sweep: saturn submit SWEEP.toml\n"
        "to see everybody's tasks: saturn status pool"
    )
    if not found.is_driven:
        say("no process drives this pool now: submit once its person has started saturn serve")
    return _OK


def run_shell(asked: Mapping[str, Any]) -> int:
    """Hold a place in the pool while a shell or a command runs there."""
    seconds = seconds_of(asked["time"])
    if not 1.0 <= seconds <= held_place.MOST_S:
        raise InvalidInput(f"--for is {asked['time']}; it must be from 1s to 30d")
    if asked["gpus"] < 1:
        raise InvalidInput("--gpus is 0; it must be at least 1")
    command = asked["command"] or [os.environ.get("SHELL", "/bin/sh")]
    if shutil.which(command[0]) is None:
        raise InvalidInput(f"there is no program `{command[0]}`")
    wished = asked["priority"]
    priority = held_place.PRIORITY if wished is None else wished
    to_end = "exit gives it back" if not asked["command"] else "it is given back once that ends"
    with held_place.held(connecting.connect(), asked["gpus"], seconds, priority, say) as (
        place,
        is_held,
    ):
        if asked["json"]:
            about = {"task": place.task, "cores": place.cores, "gpus": place.gpus or None}
            until = place.until.isoformat(timespec="seconds")
            print(json.dumps({"version": 1, **about, "until": until}), flush=True)
        say(
            f"you have {place.words} for {native.duration(place.left_s)}, until "
            f"{place.until:%H:%M}; {to_end}"
        )
        code = held_place.run(place, is_held, command, say)
    say("the place is given back")
    return code


def read_sweep(path: Path) -> sweep.Sweep:
    """Read a sweep file. Its function may import torch and load data, which takes seconds."""
    with say_if_long(f"making the tasks of {path}"):
        return sweep.read(path)


@dataclass(frozen=True)
class _Submitted:
    """What was submitted to a run in progress."""

    run: Run
    what: str
    tasks: list[str]
    #: The preview that decided whether the due time can be kept.
    foreseen: dict[str, Any] | None = None
    #: More fields of the JSON.
    more: dict[str, Any] = field(default_factory=dict)


def submit_sweep(asked: Mapping[str, Any]) -> int:
    """Add the tasks of a sweep to a run in progress, or say what they would do there."""
    told = {"version": 1, "run": asked["run_dir"], "ok": True, "code": None, "error": None}
    path, shown = Path(asked["file"]), shlex.quote(asked["run"])
    try:
        found = read_sweep(path)
        stopper = found.run.pop("stopper", None)
        found.run.pop("pool", None)  # the tasks go to a run in progress in any case
        name = asked["name"] or safe(path.stem)
        submitted = _submit(path, found, name, stopper, asked)
    except InvalidInput as error:
        if asked["json"]:
            code = getattr(error, "code", None)
            print(json.dumps({**told, "ok": False, "code": code, "error": str(error)}))
        raise
    if submitted is None:
        return _OK
    if unused := sorted(found.run):
        say(f"not used, since the run has its own: {', '.join(unused)} of `[run]` in {path}")
    foreseen = submitted.foreseen
    if asked["wait"]:
        return _wait(submitted, shown, name if stopper is not None else None, as_json=asked["json"])
    if asked["json"]:
        more = submitted.more | ({} if foreseen is None else {"preview": foreseen})
        print(json.dumps({**told, "tasks": submitted.tasks, **more}))
        return _OK
    for task in submitted.tasks:
        print(task)
    say(f"submitted {submitted.what}; where each stands: saturn status {shown}")
    if found.search is not None or stopper is not None:
        say(f"to end it: saturn cancel {shown} {shlex.quote(name)}")
    if foreseen is not None:
        say(_due_words(foreseen, shown))
    return _OK


def _wait(submitted: _Submitted, shown: str, steered: str | None, *, as_json: bool) -> int:
    """Wait for the tasks, and show their result.

    `steered` is the name of the sweep if it has a stopper.
    """
    say(f"submitted {submitted.what}; Ctrl-C ends the waiting, and the tasks go on")
    if submitted.foreseen is not None:
        say(_due_words(submitted.foreseen, shown))
    wait = partial(
        wait_or_leave,
        submitted.run,
        # With the rests of scripts, which come after the scripts' training.
        {task: task for task in submitted.run._directories},
        status_command=f"saturn status {shown}",
        cancel_command=None if steered is None else f"saturn cancel {shown} {shlex.quote(steered)}",
        tell=say,
    )
    return show(wait, teller({"json": as_json}))


def _submit(
    path: Path, found: sweep.Sweep, name: str, stopper: Any, asked: Mapping[str, Any]
) -> _Submitted | None:
    """Submit the sweep; None if only a preview was asked for, which is printed."""
    run_dir = Path(asked["run_dir"])
    run = connecting.connect() if run_dir == pool.meant() else run_or_pool(run_dir)
    try:
        if found.search is not None:
            searched = _as_pool(run, path, "a `[search]`")
            return _submit_search(searched, name, found.search, stopper, asked)
        tasks = prefixed(found.tasks, name)
        wished = {"priority": asked["priority"], "due": asked["due"]}
        steered = None if stopper is None else _as_pool(run, path, "a `stopper`")
        if asked["preview"]:
            preview = json.dumps(run.preview(tasks, **wished))
            print(preview if asked["json"] else native.preview_text(preview))
            return None
        if steered is None:
            foreseen = run.submit(tasks, **wished)
        else:
            foreseen = steered.submit(tasks, **wished, stopper=stopper, name=name)
    except Refused as error:
        if error.code != "name_taken":
            raise
        raise Refused(f"{error}; --name NAME gives another", error.code) from None
    what = "1 task" if len(tasks) == 1 else f"{len(tasks)} tasks"
    return _Submitted(run, what, [task.name for task in tasks], foreseen)


def _as_pool(run: Run, path: Path, what: str) -> Pool:
    """The run as a pool, which takes what the sweep file has."""
    if isinstance(run, Pool):
        return run
    raise InvalidInput(
        f"{path} has {what}, which only a pool takes: saturn serve. In a run of its own: "
        f"saturn sweep {shlex.quote(str(path))}"
    )


def _submit_search(
    run: Pool, name: str, search: Search, stopper: Any, asked: Mapping[str, Any]
) -> _Submitted:
    for option in ("preview", "due", "wait"):
        if asked[option]:
            raise InvalidInput(
                f"--{option} is not for a `[search]`: its tasks are suggested while it runs, each "
                "by what earlier tasks reported"
            )
    check_name(f"{name}-trial-{search.trials}")
    tuner = search.tuner(stopper, prefix=f"{name}-")
    # The first task is made here, so that its errors are shown to the person who submits.
    tuner.suggested()
    run._submit_search(name, tuner, priority=asked["priority"])
    what = f"a search of {search.trials} tasks, `{name}-trial-0` and so on"
    return _Submitted(run, what, [], more={"search": {"name": name, "trials": search.trials}})


def _due_words(foreseen: Mapping[str, Any], run: str) -> str:
    """Whether the due time of a submission is known to be kept."""
    num_unknown = sum(task["end_s"] is None for task in foreseen["tasks"])
    if num_unknown == 0:
        return "the plan keeps the due time"
    whose = (
        "its end is"
        if num_unknown == len(foreseen["tasks"]) == 1
        else (f"the ends of {num_unknown} of them are")
    )
    return (
        f"whether the due time is kept is not known yet: {whose} known once measured; then "
        f"saturn status {run} tells it, and saturn explain {run} TASK"
    )
