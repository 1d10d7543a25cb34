"""Wrong step times: how much each policy loses by them, with spread."""

from __future__ import annotations

from page_tables import Rows, Table
from program import simulated
from workloads import HERE

PAGE = "limits.md"
POLICIES = [
    *("saturn", "saturn-static", "optimus-dynamic", "current-practice-fastest", "fifo-backfill"),
]
ERRORS = (0, 5, 10, 20, 30, 50)
CASES = (("text", 1), ("mixed", 1), ("mixed", 2))
SEEDS = 20


def errors(quick: bool) -> Rows:
    """Mean makespan over the bound, with the least and the most over the seeds."""
    for grid, nodes in CASES:
        for error in ERRORS:
            if quick:
                continue
            number = SEEDS if error else 1
            seeds = ("--error", f"{error}%", "--seeds", str(number))
            found = simulated(HERE / "measured" / f"{grid}-{nodes}.toml", POLICIES, *seeds)
            bound_s = found["bound_s"]
            row = [grid, str(nodes), f"{error} %"]
            for policy in POLICIES:
                ends = ("makespan_s", "least_makespan_s", "most_makespan_s")
                mean, least, most = (found[policy][end] / bound_s for end in ends)
                row.append(f"{mean:.3f} ({least:.2f} to {most:.2f})")
            yield row


TABLES = [
    Table(
        "errors",
        PAGE,
        ["grid", "nodes", "error", *(f"`{policy}`" for policy in POLICIES)],
        errors,
        3,
    )
]
