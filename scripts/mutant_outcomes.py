"""Outcomes of Rust mutants, as files keep them: a line each, of which a later one counts."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

#: What became of a mutant: its key, name and outcome, the test that told, and seconds.
Outcome = dict[str, Any]


def outcomes(kept: Path) -> dict[str, Outcome]:
    """What earlier runs found, by the mutant's key; a later line counts."""
    lines = kept.read_text().splitlines() if kept.exists() else []
    return {one["key"]: one for one in map(json.loads, lines)}


def is_killed(one: Outcome) -> bool:
    """Whether a test noticed the mutant."""
    return one["outcome"] != "survived"


def to_keep(known: dict[str, Outcome], again: str, num_seeds: int) -> dict[str, Outcome]:
    """What is not asked again."""
    if again == "all":
        return {}
    return {
        key: one
        for key, one in known.items()
        if is_killed(one) or (again == "nothing" and one.get("seeds", num_seeds) >= num_seeds)
    }


def tell(crate: str, found: dict[str, Outcome], sampled: set[str]) -> None:
    """Prints the row of the table and the survivors."""
    ours = [one for key, one in found.items() if key in sampled]
    count = Counter(one["outcome"] for one in ours)
    killed = len(ours) - count["survived"]
    share = 100 * killed / max(1, len(ours))
    for one in sorted(one["name"] for one in ours if one["outcome"] == "survived"):
        print(f"- `{one}`")
    print(f"| {crate} | {len(ours)} | {killed} | {share:.1f}% | {count['time-out']} |")
