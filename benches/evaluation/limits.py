"""Where Saturn does not pay: few tasks, short tasks, models that scale perfectly."""

from __future__ import annotations

from page_tables import Rows, Table
from program import simulated
from workloads import HERE, LENGTHS, NODES, NUM_TASKS

PAGE = "limits.md"
POLICIES = ["saturn", "current-practice-fastest", "current-practice-habit", "min"]


def compared(name: str) -> list[str]:
    """Saturn's seconds, and its makespan over that of each other policy."""
    found = simulated(HERE / "limits" / f"{name}.toml", POLICIES)
    saturn = found["saturn"]["makespan_s"]
    shares = [f"{saturn / found[policy]['makespan_s']:.2f}" for policy in POLICIES[1:]]
    return [f"{saturn:.0f}", *shares, f"{saturn / found['bound_s']:.2f}"]


def numbers(quick: bool) -> Rows:
    """Workloads of few tasks, each of about an hour on eight GPUs."""
    for number in NUM_TASKS:
        if not quick or number < 3:
            yield [str(number), *compared(f"tasks-{number}")]


def lengths(quick: bool) -> Rows:
    """Twelve tasks of other lengths."""
    for length in LENGTHS:
        if not quick or length == 15:
            yield [str(length), *compared(f"length-{length}")]


def perfect(quick: bool) -> Rows:
    """Models that scale perfectly."""
    for nodes in NODES:
        if not quick:
            yield [str(nodes), *compared(f"perfect-{nodes}")]


def header(first: str) -> list[str]:
    """The heads of columns."""
    return [first, "Saturn, s", *(f"over `{policy}`" for policy in POLICIES[1:]), "over the bound"]


TABLES = [
    Table("numbers", PAGE, header("tasks of an hour"), numbers),
    Table("lengths", PAGE, header("seconds of a task on 8 GPUs"), lengths),
    Table("perfect", PAGE, header("nodes"), perfect),
]
