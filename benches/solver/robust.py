"""Robust plans: what a choice by drawn runtimes gains, on draws that the choice did not see.

A problem is one of `problems.CLASSES` or `queues.QUEUE_CLASSES` whose strategies say how unsure
their runtimes are. The solve with `--draws` and the solve without have the same seed and limit.
Both plans are followed here under other draws, by code that shares nothing with the solver: each
device has a queue, and a gang starts when it is first in all of its queues.
"""

from __future__ import annotations

import json
import math
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from problems import CLASSES, Problem
from queues import QUEUE_CLASSES

#: Draws here, and in the solver.
NUM_DRAWS = 1_000
SOLVER_DRAWS = 200
QUANTILE = 0.8
#: The share of strategies that are estimates, and the errors of estimates and of measurements.
ESTIMATED, ESTIMATE_ERROR, MEASURED_ERROR = 0.5, 0.2, 0.03

#: (problems, objective, what makes a problem)
ROBUST_CLASSES: list[tuple[str, str, Callable[[str], Problem]]] = [
    *(
        (name, "makespan", CLASSES[name])
        for name in ("12 tasks, 1 node", "12 tasks, 2 nodes", "14 tasks, 3 types")
    ),
    *(
        (name, "makespan", CLASSES[name])
        for name in ("30 tasks, 100 GPUs", "100 tasks, 64 GPUs", "1000 tasks, 1024 GPUs")
    ),
    ("100 tasks, 64 GPUs", "completion", QUEUE_CLASSES["100 tasks, 64 GPUs"]),
]


def unsure(problem: Problem, seed: str) -> Problem:
    """The same problem, whose strategies say how unsure they are."""
    data: Any = problem
    rng = random.Random(f"{seed}/errors")
    for task in data["tasks"]:
        for each in task["strategies"]:
            is_estimate = rng.random() < ESTIMATED
            each["relative_error"] = ESTIMATE_ERROR if is_estimate else MEASURED_ERROR
    return problem


def quantile(problem: Problem, plan: Any, objective: str, seed: str) -> float:
    """The quantile of the objective over draws, if the plan's queues are followed."""
    data: Any = problem
    by_name = {task["name"]: task for task in data["tasks"]}
    gangs = []
    for one in plan["assignments"]:
        task = by_name[one["task"]]
        kinds = {
            node.get("name") or f"n{index}": node["type"]
            for index, node in enumerate(data["cluster"]["nodes"])
        }
        kind = kinds[one["placement"][0]["node"]]
        [strategy] = [
            each
            for each in task["strategies"]
            if (each["technique"], each["gpus"], each["type"])
            == (one["technique"], one["gpus"], kind)
        ]
        devices = [(part["node"], each) for part in one["placement"] for each in part["devices"]]
        gangs.append((task, strategy, devices))
    rng = random.Random(f"{seed}/draws")
    values = []
    for _ in range(NUM_DRAWS):
        free: dict[tuple[str, int], float] = {}
        makespan = completion = 0.0
        normals = {name: rng.gauss(0.0, 1.0) for name in by_name}
        for task, strategy, devices in gangs:
            start_s = max(free.get(device, 0.0) for device in devices)
            start_s = max(start_s, task.get("release_s", 0.0))
            error = strategy["relative_error"] * normals[task["name"]]
            end_s = start_s + strategy["runtime_s"] * math.exp(error)
            free.update(dict.fromkeys(devices, end_s))
            makespan = max(makespan, end_s)
            completion += task.get("weight", 1.0) * end_s
        values.append(makespan if objective == "makespan" else completion)
    return sorted(values)[math.ceil(QUANTILE * NUM_DRAWS) - 1]


Measured = Callable[..., dict[str, Any]]


def compare(
    measured: Measured,
    program: Path,
    make: Callable[[str], Problem],
    objective: str,
    seed: str,
    moves: int,
) -> dict[str, float]:
    """What the choice gains, as ratios; of how many plans."""
    problem: Any = unsure(make(seed), seed)
    most = str(moves * len(problem["tasks"]))
    answers, quantiles = [], []
    with tempfile.TemporaryDirectory() as folder:
        file, written = Path(folder) / "problem.json", Path(folder) / "plan.json"
        file.write_text(json.dumps(problem))
        for draws in (0, SOLVER_DRAWS):
            chosen = ["--objective", objective, "--draws", str(draws), "--write", str(written)]
            # Moves are the limit: so a busy machine gives the same plans.
            chosen += ["--max-moves", most]
            answers.append(measured(program, file, "auto", 3600.0, 0, *chosen))
            quantiles.append(quantile(problem, json.loads(written.read_text()), objective, seed))
    key = "makespan_s" if objective == "makespan" else "completion_s"
    robust = answers[1]["robust"]
    seen = robust["outcome"]["value"] / robust["best_outcome"]["value"] if robust else 1.0
    return {
        "plans": robust["plans"] if robust else 1,
        "as planned": answers[1][key] / answers[0][key],
        "best plan's quantile": quantiles[0] / answers[0][key],
        "seen": seen,
        "fresh": quantiles[1] / quantiles[0],
    }


def row(
    measured: Measured,
    program: Path,
    robust_class: tuple[str, str, Callable[[str], Problem]],
    seeds: list[str],
    moves: int,
) -> list[str]:
    """One row of the table of robust plans."""
    name, objective, make = robust_class
    found = []
    for seed in seeds:
        found.append(compare(measured, program, make, objective, f"{name}/{seed}", moves))
        print(f"{name}, robust, seed {seed}: {found[-1]}", file=sys.stderr, flush=True)
    cells = [
        f"{statistics.mean(one[key] for one in found):.3f} ({max(one[key] for one in found):.3f})"
        for key in ("as planned", "best plan's quantile", "seen", "fresh")
    ]
    return [name, objective, f"{statistics.mean(one['plans'] for one in found):.0f}", *cells]
