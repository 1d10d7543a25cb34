"""What trials cost and what they are worth, and whether what they predict holds.

usage: bench.py [--seeds N] [--simulated-only] [--out FILE]

Runs `saturn-profile-bench`, which simulates runs on step times that were really measured, and the
real sweeps of `end_to_end.py`, `predicted.py` and `neighbours.py` on CPU slots, and writes what
they found as a page with a picture beside it (`docs/bench/profile.svg`).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from picture import picture

HERE = Path(__file__).resolve().parent
REPOSITORY = HERE.parents[1]
TABLE = "benches/profile/a800-measured.csv"
#: Real runs, each a section of the page.
SCRIPTS = (
    ("end_to_end.py",),
    ("predicted.py", "--repeat", "3"),
    ("predicted.py", "--repeat", "3", "--beside", "--policy", "until known"),
    ("neighbours.py",),
)

PAGE = """# Trials, measured

*What do trials cost, what are they worth, and do their predictions hold?*

`python benches/profile/bench.py --seeds {seeds} --out docs/bench/profile.md` writes this page \
(`make bench-profile` with 20 seeds). \
A section that names a program is the output of that program; if it was run at another time, the \
section says so. Load of the machine when the first section began: {load:.1f} on {cores} cores.

## What trials cost, and what they are worth
Simulated, with the real engine and solver, on step times that the Rubick system published, of \
four models on up to eight A800 ([source](../../benches/profile/SOURCE.md)). Groups of tasks are \
drawn from these step times, with changes: another batch, 3% that the table does not foresee, \
and for a third of the groups too little memory for some techniques. A trial takes 10 s to \
launch and 5 steps, and is off by 5%. A solve takes half a second. A move costs a checkpoint of \
3 s and another launch. Each row has {seeds} workloads, each beside a run of the same engine \
that knows every step time for nothing. The last number of a workload's name is the part of the \
run that trials of every strategy would take.

*Trials* are the device-seconds of trials over those of trials of every strategy: median and \
most. If a trial went on as training, and a later plan moved its task, the trial counts, since \
its launch gained nothing else. *Makespan* is over that of full knowledge: median, 90%, worst. \
Goals: trials at most 5%, makespan at most 1.03, 1.08, 1.15, and no workload longer than with \
first trials alone.

{table}

{first}

![Makespan over what trials cost](profile.svg)

"Chosen" is the default of `orchestrate`, with and without a limit. "First trials alone" are one \
trial of each group, and plans by the estimates that follow from it. The other rows measure fixed \
device counts, and their plans use nothing else.
"""


def main() -> None:
    """Print the page, and write it and its picture to `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=20, help="workloads of each size")
    parser.add_argument("--simulated-only", action="store_true", help="leave the real runs out")
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    load, cores = os.getloadavg()[0], os.cpu_count()
    runs = simulated(arguments.seeds)
    page = PAGE.format(
        seeds=arguments.seeds, load=load, cores=cores, table=table(runs), first=beside_first(runs)
    )
    if not arguments.simulated_only:
        page += "\n" + "\n".join(script(*command) for command in SCRIPTS)
    print(page)
    if arguments.out is not None:
        arguments.out.write_text(page)
        arguments.out.with_suffix(".svg").write_text(picture(points(runs)))


def simulated(seeds: int) -> list[dict[str, Any]]:
    """Every run of the simulator."""
    command = [sys.executable, "scripts/setup.py", "--run", "cargo", "run", "--quiet", "--release"]
    command += ["-p", "saturn-sim", "--bin", "saturn-profile-bench", "--", TABLE, str(seeds)]
    found = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    return [json.loads(line) for line in found.stdout.splitlines()]


def script(name: str, *arguments: str) -> str:
    """What another script of this directory prints."""
    command = [sys.executable, str(HERE / name), *arguments]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def at(runs: list[dict[str, Any]], field: str, percent: int) -> float:
    """A percentile of a field."""
    values = sorted(float(run[field]) for run in runs)
    return values[(len(values) - 1) * percent // 100]


def table(runs: list[dict[str, Any]]) -> str:
    """A row for each way to spend and each workload, and one for all workloads of a way."""
    rows = [
        "| trials | workload | device-seconds: median, most | run | went on | makespan |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for way in dict.fromkeys(run["way"] for run in runs):
        of_way = [run for run in runs if run["way"] == way]
        workloads = list(dict.fromkeys(run["workload"] for run in of_way))
        for workload in [*workloads, None]:
            shown = [run for run in of_way if workload in (None, run["workload"])]
            if workload is not None and way not in ("chosen", "every strategy"):
                continue
            makespan = ", ".join(f"{at(shown, 'makespan', part):.3f}" for part in (50, 90, 100))
            rows.append(
                f"| {way} | {workload or '**all**'} "
                f"| {at(shown, 'trials', 50):.1%}, {at(shown, 'trials', 100):.1%} "
                f"| {at(shown, 'number', 50):.0%} | {at(shown, 'went_on', 50):.0%} "
                f"| {makespan} |"
            )
    return "\n".join(rows)


def beside_first(runs: list[dict[str, Any]]) -> str:
    """A sentence on the workloads that end later than with first trials alone."""
    ends = {(run["way"], run["workload"], run["seed"]): run["makespan"] for run in runs}
    over = [
        makespan / ends["first trials alone", workload, seed]
        for (way, workload, seed), makespan in ends.items()
        if way == "chosen" and ("first trials alone", workload, seed) in ends
    ]
    later = [one for one in over if one > 1.0]
    worst = f", the worst of them by {max(later) - 1:.1%}" if later else ""
    return (
        f"Of {len(over)} workloads, {len(later)} end later with chosen trials than with first "
        f"trials alone{worst}; all together end {1 - sum(over) / len(over):.0%} sooner on average."
    )


def points(runs: list[dict[str, Any]]) -> list[tuple[str, float, float, float]]:
    """Of each way to spend: its name, trials, and makespan in the median and at 90%."""
    ways = dict.fromkeys(run["way"] for run in runs)
    found = []
    for way in ways:
        of_way = [run for run in runs if run["way"] == way]
        trials = at(of_way, "trials", 50)
        found.append((way, trials, at(of_way, "makespan", 50), at(of_way, "makespan", 90)))
    return found


if __name__ == "__main__":
    main()
