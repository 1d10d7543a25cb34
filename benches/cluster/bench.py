"""Clusters measured: what a driver of a hundred agents costs, a launch, a cluster whose nodes fail.

usage: bench.py [--seconds N] [--turns N] [--nodes N] [--tasks N] [--seeds N] [--out FILE]

Runs `letters.py` and `launch.py`, each in a process of its own with Ray's token on, and
`saturn-outages`, which simulates, and writes what they found as a page.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]

PAGE = """# Clusters, measured

*What does a cluster cost: its driver, a launch through an agent, a node that fails?*

`python benches/cluster/bench.py --out docs/bench/cluster.md` writes this page (`make \
bench-cluster`). Load of the machine when it began: {load:.1f} on {cores} cores.

## A hundred agents

A run on {agents} agents of 8 ranks each, {ranks} ranks in all, for {seconds:.0f} s. Each rank \
reports its step four times a second. (In a real run one rank of each gang speaks for all.) \
Three parts are real: the driver (engine, journal, launcher), the threads that carry letters, \
and Ray's calls between processes, with its token. Agents and ranks are simulated: {hosts} \
processes of Ray have up to 20 agents each, and ranks are counters. As real agents do, simulated \
agents answer letters, and hold heartbeats back: each second they send the newest of each rank. \
Seconds count all threads of the driver's process, and leave out Ray's own processes. \
Letters carry numbers. If a letter comes in place of another, the driver refuses it, and its \
agent is lost.

| | found | goal |
| --- | --- | --- |
| the driver's share of a core | {share:.1%} | under 25% |
| words of ranks | {reports:.0f} a second | {wanted:.0f} |
| letters that came | {letters:.0f} a second, in {deliveries:.0f} deliveries | |
| letters out of order | {refused} | 0 |
| agents lost | {lost} | 0 |

By thread, of a core: {threads}.

## A launch

The time from the decision to launch a gang of 8 ranks until its first word, which is when it \
trains. This machine's launcher and an agent on a Ray node of this machine take turns. Ranks are \
real, with torch, and share {cores} cores, on which nearly all of that time is spent: so the \
least says most. Goal: at most 0.3 s more through an agent.

| | launches | least | median | most |
| --- | --- | --- | --- | --- |
{launches}

Through an agent the least is {more:+.2f} s, the median {more_median:+.2f} s.

## Nodes that fail

Simulated: {nodes} nodes of 8 devices and {tasks} tasks of some 15 to 150 hours on one device, \
three days in all, with and without faults. With faults, a node that is drawn anew each hour is \
gone for half an hour. Engine and solver are the real ones. Two losses can't be avoided: devices \
that are gone can't be used, and a gang on a failed node repeats its loading and its work since \
the last checkpoint (each half hour). *At least then* is the time without faults plus these two \
losses divided by the number of devices. Goal, for 128 nodes and 1,000 tasks: within 3% of that. \
Below 0%: the faults led to a better plan.

{outages}
"""


def _run(program: str, asked: dict[str, Any]) -> dict[str, Any]:
    environment = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    command = [sys.executable, str(Path(__file__).with_name(program)), json.dumps(asked)]
    ran = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def _outages(nodes: int, tasks: int, seeds: int) -> str:
    command = [sys.executable, "scripts/setup.py", "--run", "cargo", "run", "--quiet", "--release"]
    command += [
        "-p",
        "saturn-sim",
        "--bin",
        "saturn-outages",
        "--",
        *map(str, (nodes, tasks, seeds)),
    ]
    ran = subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.PIPE, text=True)
    return ran.stdout.strip()


def main() -> None:
    """Print the page, and write it to `--out`."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="that a driver is watched")
    parser.add_argument("--turns", type=int, default=3, help="runs by each launcher")
    parser.add_argument("--nodes", type=int, default=128, help="of a simulated cluster")
    parser.add_argument("--tasks", type=int, default=1000, help="on it")
    parser.add_argument("--seeds", type=int, default=1, help="simulated clusters")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    load = os.getloadavg()[0]
    asked = {"num_agents": 100, "num_ranks": 8, "reports_a_second": 4, "seconds": options.seconds}
    letters = _run("letters.py", asked)
    launch = _run("launch.py", {"turns": options.turns, "tasks": 4})
    rows = [
        f"| {name} | {of['num']} | {of['least_s']:.2f} s | {of['median_s']:.2f} s | "
        f"{of['most_s']:.2f} s |"
        for name, of in (
            ("by this machine's launcher", launch["local"]),
            ("through an agent", launch["agent"]),
        )
    ]
    page = PAGE.format(
        load=load,
        cores=os.cpu_count(),
        agents=letters["agents"],
        hosts=letters["hosts"],
        ranks=letters["ranks"],
        seconds=letters["seconds"],
        share=letters["share"],
        reports=letters["reports_a_second"],
        wanted=letters["ranks"] * asked["reports_a_second"],
        letters=letters["letters_a_second"],
        deliveries=letters["deliveries_a_second"],
        refused=letters["num_refused"],
        lost=letters["num_lost"],
        threads=", ".join(
            f"`{name}` {share:.1%}"
            for name, share in sorted(letters["threads"].items(), key=lambda one: -one[1])
        ),
        launches="\n".join(rows),
        more=launch["agent"]["least_s"] - launch["local"]["least_s"],
        more_median=launch["agent"]["median_s"] - launch["local"]["median_s"],
        nodes=options.nodes,
        tasks=options.tasks,
        outages=_outages(options.nodes, options.tasks, options.seeds),
    )
    print(page)
    if options.out is not None:
        options.out.write_text(page)


if __name__ == "__main__":
    main()
