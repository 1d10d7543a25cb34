"""A measured grid as a planning problem, for `saturn plan`."""

from __future__ import annotations

import csv
import math
from typing import Any

from program import ROOT
from workloads import LOAD_S, SAVE_S, measured_tasks

TABLE = ROOT / "benches" / "profile" / "a800-measured.csv"

#: Saturn's names for techniques of the measured table.
NAMES = {"zero-dp": "fsdp", "zero-offload": "offload"}
#: Seconds between two checkpoints: the default of a workload.
EVERY_S = 1800.0


def problem(grid: str, nodes: int) -> dict[str, Any]:
    """The planning problem of a measured grid."""
    known = step_times()
    tasks = []
    for name, model, steps in measured_tasks(grid):
        strategies = [
            {"technique": technique, "gpus": gpus, "runtime_s": LOAD_S + training_s(steps, step_s)}
            for (of, technique, gpus), step_s in known.items()
            if of == model
        ]
        common = {"switch_cost_s": LOAD_S + SAVE_S, "strategies": strategies}
        tasks += [{"name": f"{name}-{number}", **common} for number in range(1, 4)]
    cluster = {"nodes": [{"name": f"n{number}", "gpus": 8} for number in range(nodes)]}
    return {"cluster": cluster, "tasks": tasks}


def training_s(steps: int, step_s: float) -> float:
    """Seconds of all steps and checkpoints."""
    between = math.ceil(EVERY_S / step_s)
    return steps * step_s + SAVE_S * (1 + (steps - 1) // between)


def step_times() -> dict[tuple[str, str, int], float]:
    """Seconds a step within one node, by model, technique and GPUs; the fastest row counts."""
    found: dict[tuple[str, str, int], float] = {}
    with TABLE.open() as file:
        for row in csv.DictReader(file):
            if row["nodes"] == "1":
                technique = row["technique"]
                name = "tensor" if technique.startswith("3d") else NAMES.get(technique, technique)
                key = row["model"], name, int(row["gpus"])
                found[key] = min(found.get(key, math.inf), float(row["step_s"]))
    return found
