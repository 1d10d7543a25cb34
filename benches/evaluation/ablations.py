"""Saturn without one of its parts, on the measured grids."""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean

from page_tables import Rows, Table
from program import simulated
from workloads import HERE, MEASURED, NODES

PAGE = "ablations.md"
PARTS = [
    *("saturn", "saturn-static", "saturn-no-switches", "saturn-fixed-technique"),
    "saturn-fixed-gpus",
]
MEASURING = ["saturn-no-going-on", "saturn-no-prior"]
CASES = [(grid, nodes) for grid in MEASURED for nodes in NODES]
#: Grids with wrong or unknown step times, and the seeds of wrong ones. All others have one seed.
WRONG = (("text", 1), ("mixed", 1))
SEEDS = 5


def rows(
    kind: str, cases: list[tuple[str, int]], policies: list[str], *options: str
) -> Callable[[bool], Rows]:
    """Each policy's mean makespan over the bound on each grid, and the mean over `saturn`'s."""

    def made(quick: bool) -> Rows:
        if quick:
            return
        found = [
            simulated(HERE / "ablations" / f"{grid}-{nodes}-{kind}.toml", policies, *options)
            for grid, nodes in cases
        ]
        for policy in policies:
            makespans = [case[policy]["makespan_s"] for case in found]
            over = [
                makespan / case["saturn"]["makespan_s"]
                for makespan, case in zip(makespans, found, strict=True)
            ]
            cells = [
                f"{makespan / case['bound_s']:.3f}"
                for makespan, case in zip(makespans, found, strict=True)
            ]
            yield [f"`{policy}`", *cells, f"{fmean(over):.3f}"]

    return made


def table(
    name: str, kind: str, cases: list[tuple[str, int]], policies: list[str], *options: str
) -> Table:
    """A table with a column for each grid."""
    columns = [f"{grid}, {nodes}" for grid, nodes in cases]
    header = ["over the bound", *columns, "over `saturn`, mean"]
    return Table(name, PAGE, header, rows(kind, cases, policies, *options))


MANY = ("--seeds", str(SEEDS))
TABLES = [
    table("parts", "known", CASES, PARTS),
    table("parts-wrong", "known", list(WRONG), PARTS, *MANY, "--error", "20%"),
    table("parts-trials", "trials", list(WRONG), PARTS + MEASURING),
]
