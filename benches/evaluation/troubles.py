"""Faults, arrivals and owners: what each policy takes, with the least and the most of the seeds."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import fmean
from typing import Any

from page_tables import Rows, Table
from program import answer
from workloads import HERE, NODES

PAGE = "troubles.md"
#: Seeds of each workload; nothing is random in the calm one.
SEEDS = {"calm": 1} | dict.fromkeys(
    ("early", "slow", "lost", "poisson", "bursts", "hours", "owners"), 20
)
HOUR_S = 3600.0
#: Short solves: simulating Saturn takes several times as long without.
SHORT = ("--moves", "100000")
SATURN, RUBICK, THEMIS = "saturn", "rubick-like", "themis-like"
POLICIES = [
    *(SATURN, "saturn-static", "saturn-interval", "optimus-dynamic", RUBICK),
    *("current-practice-fastest", "fifo-backfill", "shortest-first"),
]
#: What the quick check makes again: the rows of policies that take no second, on one node.
QUICK = ["shortest-first"]
#: Streams of tasks.
STREAMS = ("poisson", "bursts", "hours")
FAULTS = ("slow", "early", "lost")

#: The results of a policy by seed.
Runs = list[dict[str, Any]]


def runs(name: str, nodes: int, policies: list[str]) -> dict[str, Runs]:
    """The results of each policy. `rubick-like` has tasks without requests."""
    found: dict[str, Runs] = {}
    for is_open in (False, True):
        chosen = [policy for policy in policies if (policy == RUBICK) == is_open]
        if chosen:
            path = f"benches/evaluation/troubles/{name}-{nodes}{'-open' if is_open else ''}.toml"
            options = ("--policy", ",".join(chosen), "--seeds", str(SEEDS[name]), *SHORT)
            data = answer("simulate", path, *options)
            found |= {policy["name"]: policy["runs"] for policy in data["policies"]}
    return {policy: found[policy] for policy in policies}


def chosen(quick: bool, policies: list[str]) -> Iterator[tuple[int, list[str]]]:
    """The numbers of nodes, with the policies."""
    for nodes in NODES[:1] if quick else NODES:
        yield nodes, QUICK if quick else policies


def spread(numbers: list[float], digits: int = 2) -> str:
    """The mean, with the least and the most."""
    mean, least, most = (
        f"{one:.{digits}f}" for one in (fmean(numbers), min(numbers), max(numbers))
    )
    return f"{mean} ({least} to {most})"


def hours(of: Runs, key: str) -> list[float]:
    """Seconds of each seed, in hours."""
    return [run[key] / HOUR_S for run in of]


def faults(name: str) -> Callable[[bool], Rows]:
    """A grid with a fault, beside the same grid without."""

    def rows(quick: bool) -> Rows:
        for nodes, policies in chosen(quick, POLICIES):
            calm = runs("calm", nodes, policies)
            for policy, of in runs(name, nodes, policies).items():
                ratio = fmean(hours(of, "makespan_s")) / fmean(hours(calm[policy], "makespan_s"))
                yield [
                    *(str(nodes), f"`{policy}`", spread(hours(of, "makespan_s")), f"{ratio:.2f}"),
                    spread(hours(of, "mean_completion_s")),
                    f"{fmean(run['moves'] for run in of):.1f}",
                ]

    return rows


def arrivals(name: str) -> Callable[[bool], Rows]:
    """A stream of tasks."""

    def rows(quick: bool) -> Rows:
        for nodes, policies in chosen(quick, POLICIES):
            found = runs(name, nodes, policies)
            for policy, of in found.items():
                yield [
                    *(str(nodes), f"`{policy}`", f"{fmean(hours(of, 'makespan_s')):.2f}"),
                    spread([run["makespan_s"] / run["lower_bound_s"] for run in of], 3),
                    spread(hours(of, "mean_completion_s")),
                    f"{fmean(run['moves'] for run in of):.1f}",
                ]

    return rows


def owners(quick: bool) -> Rows:
    """Three owners."""
    for nodes, policies in chosen(quick, [*POLICIES, THEMIS]):
        for policy, of in runs("owners", nodes, policies).items():
            yield [
                *(str(nodes), f"`{policy}`", spread([run["worst_owner"] for run in of])),
                spread([run["mean_owner"] for run in of]),
                spread(hours(of, "makespan_s")),
                spread(hours(of, "mean_completion_s")),
            ]


def grids(quick: bool) -> Rows:
    """Makespan and mean end on the measured grids, with nothing wrong."""
    policies = [SATURN, "saturn-static", "optimus-dynamic", RUBICK, "shortest-first"]
    for path in sorted((HERE / "measured").glob("*.toml")):
        if quick:
            return
        grid, _, nodes = path.stem.rpartition("-")
        name = f"benches/evaluation/measured/{path.name}"
        data = answer("simulate", name, "--policy", ",".join(policies))
        cells = [
            f"{policy['mean']['makespan_s'] / data['lower_bound_s']:.3f}, "
            f"{policy['mean']['mean_completion_s'] / HOUR_S:.1f} h"
            for policy in data["policies"]
        ]
        yield [grid, nodes, *cells]


def table(name: str, header: list[str], rows: Callable[[bool], Rows]) -> Table:
    """A table whose rows are of a number of nodes and a policy."""
    return Table(name, PAGE, ["nodes", "policy", *header], rows, 2)


FAULT = ["makespan, h", "over that without", "mean end, h", "moves"]
ARRIVAL = ["makespan, h", "over the bound", "mean completion, h", "moves"]
OWNER = ["worst owner", "mean owner", "makespan, h", "mean completion, h"]
TABLES = [
    *(table(name, FAULT, faults(name)) for name in FAULTS),
    *(table(name, ARRIVAL, arrivals(name)) for name in STREAMS),
    table("owners", OWNER, owners),
    Table(
        "ends",
        PAGE,
        [
            *("grid", "nodes", "`saturn`", "`saturn-static`", "`optimus-dynamic`"),
            *("`rubick-like`", "`shortest-first`"),
        ],
        grids,
        2,
    ),
]
