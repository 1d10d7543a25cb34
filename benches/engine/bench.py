"""The engine measured: a week of a large pool, resumes, re-planning, and real runs.

usage: bench.py [--seeds N] [--tasks N] [--out FILE]

Runs `saturn-engine-bench` and `saturn-introspection`, which simulate, `resume_bench`, which reads
the journals of simulated runs, and two real runs on CPU slots (`real_runs.py`), and writes what
they found as a page.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

PAGE = """# The engine, measured

*How long does the engine take to schedule many tasks, and what does planning again gain?*

`python benches/engine/bench.py --seeds {seeds} --tasks {tasks} --out \
docs/bench/engine.md` writes this page (`make bench-engine` with 500 seeds and 1,000 tasks); the \
solver has [its own](solver.md). \
Load of the machine when it began: {load:.1f} on {cores} cores.

## A week of a large pool
Simulated: tasks of one to twenty hours on one GPU, with 8 GPUs on a node. They come in a \
hundred sweeps over five days. There are as many tasks as GPUs, and then forty times as many. \
Ranks crash and hang, launches fail, steps are noisy, a fifth of the nodes go and come back. A \
stub solver answers with a plan that costs next to nothing. Times are processor times. Around a \
solve the engine first builds the problem, and then judges the answer: these are the two halves. \
A plan that is extended at once, without a solve, counts as a half. In the third table nothing is \
measured when the tasks come, all within two hours: models are inspected, trials run where they \
pay, a tenth of the groups take two whole nodes, and host memory is short on every node. There \
every second event is measured, and before each of these the processor's caches are emptied: \
in a run seconds pass between events, but a simulation's next event finds in the caches what a \
small pool has, and not what a large pool has. Goal: the largest of the first table in under 10 s \
and 1 GB, and a slope of at most 0.2.

{week}

## Resuming a long run
The journals of whole runs of the first two tables, as they stand at the run's end. Each is read \
as `saturn resume` reads it before it looks for devices. Times are processor times. Goal: ten \
thousand tasks in under 3 s and 250 MB.

{resumes}

## What re-planning gains and loses
Simulated: {seeds} random workloads a row. Their measured runtimes are wrong by a bias for each \
strategy and by noise for each step, of the size in the first column. Each workload is run with \
introspection and without. The numbers say by how much the run with introspection was longer \
(negative: shorter). Goal: at most +1% at the 95th percentile, and a negative mean.

{introspection}

## Real runs
{real}
"""


def binary(name: str, *arguments: str) -> str:
    """What a program of the simulator prints."""
    command = [sys.executable, "scripts/setup.py", "--run", "cargo", "run", "--quiet", "--release"]
    command += ["-p", "saturn-sim", "--bin", name, "--", *arguments]
    found = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    return found.stdout.strip()


#: Tasks and GPUs of the runs whose journals are read.
RESUMED = ((1000, 25), (10_000, 250), (10_000, 10_000))


def resumes() -> str:
    """A table of journals, and of the time and memory to read each."""
    cargo = [sys.executable, "scripts/setup.py", "--run", "cargo"]
    build = [*cargo, "build", "--quiet", "--release", "-p", "saturn-cli"]
    subprocess.run([*build, "--example", "resume_bench"], cwd=REPOSITORY, check=True)
    program = REPOSITORY / "target/release/examples/resume_bench"
    head = "| tasks | GPUs | attempts | records | journal | time | peak memory |"
    rows = [head, "|" + " --- |" * 7]
    for tasks, gpus in RESUMED:
        with tempfile.TemporaryDirectory() as run:
            subprocess.run([program, "write", run, str(tasks), str(gpus)], check=True)
            read = [program, "read", run]
            found = subprocess.run(read, check=True, stdout=subprocess.PIPE, text=True)
            rows.append(found.stdout.strip())
    return "\n".join(rows)


def main() -> None:
    """Print the page, and write it to `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", default="500", help="workloads a row of the re-planning table")
    parser.add_argument("--tasks", default="1000", help="of the real run with many")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    real = [sys.executable, str(Path(__file__).with_name("real_runs.py")), options.tasks]
    page = PAGE.format(
        load=load,
        cores=os.cpu_count(),
        week=binary("saturn-engine-bench"),
        resumes=resumes(),
        seeds=options.seeds,
        tasks=options.tasks,
        introspection=binary("saturn-introspection", options.seeds),
        real=subprocess.run(real, check=True, stdout=subprocess.PIPE, text=True).stdout.strip(),
    )
    print(page)
    if options.out is not None:
        options.out.write_text(page)


if __name__ == "__main__":
    main()
