"""Measured grids under every policy, beside the bound; and how near plans come with more time."""

from __future__ import annotations

import functools
import json
import tempfile
from pathlib import Path
from typing import Any

from page_tables import Rows, Table
from problems import problem
from program import answer, simulated
from workloads import HERE, MEASURED, NODES

PAGE = "measured.md"
POLICIES = [
    *("saturn", "saturn-static", "saturn-interval", "current-practice-fastest"),
    *("current-practice-habit", "max", "min", "random", "optimus", "optimus-dynamic", "fifo"),
    *("fifo-backfill", "shortest-first"),
]
#: Policies that plan by Saturn's own solver.
SATURNS = POLICIES[:3]
CASES = [(grid, nodes) for grid in MEASURED for nodes in NODES]
#: Makespans below this multiple of the bound meet the goal.
GOAL = 1.03
#: Seeds of the solver's search, whose luck shows in a plan.
SEEDS = 5
#: Seconds of a solve that shows how near a plan comes.
SOLVE_S = 20


def workload(grid: str, nodes: int) -> Path:
    """A workload's file."""
    return HERE / "measured" / f"{grid}-{nodes}.toml"


@functools.cache
def found(grid: str, nodes: int) -> dict[str, Any]:
    """Every policy on a grid."""
    return simulated(workload(grid, nodes), POLICIES, "--seeds", str(SEEDS))


@functools.cache
def of_saturn(grid: str, nodes: int) -> dict[str, Any]:
    """Saturn alone on a grid, which takes a quarter as long."""
    return simulated(workload(grid, nodes), POLICIES[:1], "--seeds", str(SEEDS))


def policies(quick: bool) -> Rows:
    """Makespan over the bound, for each policy and grid."""
    if quick:
        return
    cases = [found(*case) for case in CASES]
    for policy in POLICIES:
        yield [f"`{policy}`", *(f"{case[policy]['over_bound']:.3f}" for case in cases)]


def verdict(quick: bool) -> Rows:
    """How Saturn stands on each grid."""
    if quick:
        return
    for grid, nodes in CASES:
        case = found(grid, nodes)
        saturn, bound_s = case["saturn"]["makespan_s"], case["bound_s"]
        others = {policy: case[policy]["makespan_s"] for policy in POLICIES[1:]}
        best = min(set(POLICIES) - set(SATURNS), key=lambda policy: others[policy])
        practice = others["current-practice-fastest"]
        ahead = [100 * (1 - saturn / others[policy]) for policy in (best, "saturn-static")]
        yield [
            *(grid, str(nodes), f"{bound_s / 3600:.2f}", f"{saturn / 3600:.2f}"),
            f"{saturn / bound_s:.3f}",
            f"{case['saturn']['most_makespan_s'] / bound_s:.3f}",
            "yes" if saturn <= GOAL * bound_s else "no",
            *(f"`{best}`", *(f"{one:+.1f} %" for one in ahead), f"{saturn / practice:.3f}"),
        ]


def planner(quick: bool) -> Rows:
    """Plans of the solver with 20 s on two cores, beside its bounds."""
    if quick:
        return
    for grid, nodes in CASES:
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(problem(grid, nodes), file)
            file.flush()
            limit = ("--time-limit", str(SOLVE_S))
            whole, moved = (
                answer("plan", file.name, *limit, "--max-switches", most) for most in ("0", "1")
            )
        bound_s = moved["lower_bound_s"]
        alone = of_saturn(grid, nodes)
        simulated_s = alone["saturn"]["makespan_s"]
        yield [
            *(grid, str(nodes), f"{simulated_s / bound_s:.3f}"),
            *(f"{whole['makespan_s'] / bound_s:.3f}", f"{moved['makespan_s'] / bound_s:.3f}"),
            f"{100 * (bound_s / alone['bound_s'] - 1):+.1f} %",
        ]


TABLES = [
    Table(
        "verdict",
        PAGE,
        [
            *("grid", "nodes", "bound, h", "Saturn, h", "over the bound"),
            *("its worst seed", "within 3%"),
            *("best of the others", "ahead of it by", "ahead of `saturn-static` by"),
            "over practice",
        ],
        verdict,
        2,
    ),
    Table(
        "policies",
        PAGE,
        ["policy, over the bound", *(f"{grid}, {nodes}" for grid, nodes in CASES)],
        policies,
    ),
    Table(
        "planner",
        PAGE,
        [
            *(
                "grid",
                "nodes",
                "simulated `saturn`",
                "plan of whole tasks",
                "plan, one move a task",
            ),
            "this bound over the simulated one",
        ],
        planner,
        2,
        is_timed=True,
    ),
]
