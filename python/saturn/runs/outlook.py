"""What is known of tasks before they run: a planning problem, made of trials and estimates.

Nothing is run or stored. Results of earlier trials come from the same store as for a run on this
machine.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from saturn import native
from saturn.runs import profiles, request
from saturn.runs.profiles import Profile
from saturn.runs.request import Wishes
from saturn.runs.settings import PathLike, Settings
from saturn.tasks.task import Task


@dataclass(frozen=True)
class Outlook:
    """A planning problem, with what is missing in it."""

    #: The problem in the form that `saturn plan` reads.
    problem: dict[str, Any]
    #: How many of its strategies are estimates, not measurements.
    num_estimated: int
    #: Names of the tasks of which nothing is known.
    unknown: list[str]


def outlook(
    tasks: Iterable[Task],
    *,
    techniques: Iterable[str] | None = None,
    devices: int | None = None,
    device_memory: int | str | None = None,
    host_memory: int | str | None = None,
    profile: PathLike | None = None,
) -> Outlook:
    """Make a planning problem of tasks; arguments as for `orchestrate`. Raises `InvalidInput`."""
    settings = Settings(
        mode="orchestrate",
        techniques=techniques,
        devices=devices,
        device_memory=device_memory,
        host_memory=host_memory,
        name=None,
        runs_dir=".",
        profile=profile,
        warmup_steps=1,
        timed_steps=3,
        trial_budget="worthwhile",
    )
    workload = request.checked_tasks(tasks)
    checked = settings.checked()
    entries = request.with_scripts(checked.entries, workload, keep_open=False)
    request.check_order(workload)
    request.check_techniques(workload, entries)
    packed = request.pack(workload)
    reused = Profile([]) if checked.profile is None else profiles.load(checked.profile)
    with tempfile.TemporaryDirectory(prefix="saturn-") as directory:
        described = {
            **checked.described,
            "run_dir": directory,
            "preload": [],
            "techniques": [
                {"name": one.name, "level": one.level, "import": one.import_path, "pickle": None}
                for one in entries
            ],
            "tasks": [
                each.described(f"tasks/{index}", reused, entries, Wishes())
                for index, each in enumerate(packed)
            ],
        }
        found = json.loads(native.outlook(json.dumps(described, allow_nan=False)))
    return Outlook(found["problem"], found["num_estimated"], found["unknown"])
