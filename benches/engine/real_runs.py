"""Two real runs on CPU slots, and what the process that drives them costs; prints markdown.

usage: real_runs.py [NUM_TASKS]

Nothing is computed in a step but a sleep, so that the ranks leave the cores to the driver.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import saturn
import torch
from saturn import HParams, Task
from saturn.errors import RunInterrupted

#: Ranks that report in the first run, how long a step is, and for how long the driver is watched.
NUM_RANKS, STEP_S, WATCHED_S = 8, 0.05, 20.0
#: Devices and steps of each task in the second run.
NUM_DEVICES, STEPS = 2, 4


def get_model(width: int) -> torch.nn.Module:
    """A model of next to nothing."""
    return torch.nn.Linear(width, 2)


def get_dataloader(width: int) -> torch.utils.data.DataLoader[Any]:
    """Batches for it."""
    data = torch.utils.data.TensorDataset(torch.zeros(64, width), torch.zeros(64).long())
    return torch.utils.data.DataLoader(data, batch_size=4)


def loss(step_s: float, outputs: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A step that takes as long on any machine."""
    time.sleep(step_s)
    return torch.nn.functional.cross_entropy(outputs, labels)


def task(index: int, steps: int, step_s: float) -> Task:
    """A task unlike all others: each is measured for itself."""
    return Task(
        partial(get_model, index + 1),
        partial(get_dataloader, index + 1),
        partial(loss, step_s),
        HParams(lr=0.1, batch_count=steps),
        name=f"t{index}",
        gpu_range=[1],
    )


def share_of_a_core(directory: Path) -> float:
    """What the driver uses of a core while ranks report four times a second each."""
    tasks = [task(index, 1_000_000, STEP_S) for index in range(NUM_RANKS)]
    run = saturn.start(tasks, runs_dir=directory, devices=NUM_RANKS, techniques=["ddp"], log=False)
    while any(one["stage"] != "running" for one in run.status()["tasks"]):
        time.sleep(1.0)
    # The first steps and the plan are over then.
    time.sleep(5.0)
    used_s, watched_s = time.process_time(), time.perf_counter()
    time.sleep(WATCHED_S)
    share = (time.process_time() - used_s) / (time.perf_counter() - watched_s)
    run.stop(at_once=True)
    with contextlib.suppress(RunInterrupted):
        run.wait()
    return share


def gaps(report: dict[str, Any]) -> tuple[list[float], float]:
    """From an attempt's end on a device to the launch of the next, seconds, and their share."""
    attempts: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for one in report["attempts"]:
        for part in one["gang"]:  # nothing, for an inspection
            for device in part["devices"]:
                attempts[device].append((one["launched_s"], one["ended_s"]))
    found = []
    for times in attempts.values():
        times.sort()
        found += [after[0] - before[1] for before, after in pairwise(times)]
    return found, sum(found) / (report["now_s"] * len(attempts))


def many(directory: Path, num_tasks: int) -> str:
    """A run with many tasks that are all measured."""
    tasks = [task(index, STEPS, 0.0) for index in range(num_tasks)]
    began_s, used_s = time.perf_counter(), time.process_time()
    result = saturn.orchestrate(
        tasks, runs_dir=directory, devices=NUM_DEVICES, techniques=["ddp"], log=False
    )
    took_s, driver_s = time.perf_counter() - began_s, time.process_time() - used_s
    report = json.loads((result.run_dir / "report.json").read_text())
    found, share = gaps(report)
    found.sort()
    at = [found[len(found) * part // 100] * 1e3 for part in (50, 95, 99)]
    return (
        f"{num_tasks} distinct tasks are each measured and then trained for {STEPS} steps, on "
        f"{NUM_DEVICES} CPU slots: {len(report['attempts'])} attempts in {took_s:.0f} s. The "
        f"driver used {driver_s:.1f} s of a core. Time from an attempt's end on a device to the "
        f"next launch: median {at[0]:.1f} ms, 95th percentile {at[1]:.1f} ms, 99th {at[2]:.1f} "
        f"ms, longest {found[-1] * 1e3:.0f} ms. Together that is {100 * share:.2f}% of the "
        "devices' time. (Goal: no device idle for the driver's sake.)"
    )


def main() -> None:
    """The program."""
    num_tasks = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    with tempfile.TemporaryDirectory(prefix="saturn-bench-") as directory:
        # A store of its own: with trial results of earlier runs, the tasks would not be measured.
        os.environ["SATURN_HOME"] = str(Path(directory) / "home")
        share = share_of_a_core(Path(directory))
        print(
            f"A driver with {NUM_RANKS} ranks that report four times a second each uses "
            f"{100 * share:.2f}% of a core (goal: under 1%).\n"
        )
        print(many(Path(directory), num_tasks))


if __name__ == "__main__":
    main()
