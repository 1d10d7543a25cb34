"""Writes what became of Rust mutants as a page of tables (docs/mutants.md)."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from mutant_outcomes import Outcome, is_killed, outcomes

BEGINNING = """\
# Which wrong changes of the Rust core do its tests notice?

A *mutant* is the program with one small wrong change: a function that returns a default value, `<`
in place of `<=`, a condition that is always true, an arm of a `match` that is gone. The tests
*kill* a mutant if one of them fails. The share of killed mutants says more than coverage: it counts
lines whose result is checked, not lines that ran.

`make mutants` measures it, in hours; `python scripts/mutants.py saturn-engine` measures one crate.
cargo-mutants says which mutants there are. All mutants of a sample are compiled into one program,
and an environment variable chooses one when the program runs (`scripts/schemata.py`). So a mutant
costs the time of its tests, not that of a build. The sample is the mutants with the smallest
digests of file, function, change and line: a change elsewhere leaves it as it is. Mutants that do
not compile are not counted. A test that takes five times its processor time counts as a kill.

Outcomes are in `tests/mutants`, and `python scripts/mutants.py page` writes this page from them. A
run that was cut goes on where it stopped. Mutants are tried in the order of their digests, so those
tried so far are a sample too. "Killed at first" counts kills before survivors got tests.
"""
ALL_SEEDS = 1000
#: Whom a campaign lets judge, by the end of its file's name.
JUDGES = {
    "tests": "the quick gate's tests",
    "own": "its own tests alone (`--by own`)",
    "seeds": "the simulator's seeds (`--by seeds`)",
    "nightly": "of the quick gate's survivors, the same tests with more cases (`--by nightly`)",
}
PARTLY = """\
Of the quick gate, mutants of the engine met the engine's own tests and 300 of the 1,000 seeds, but
no other test of `simulations` and `replays`. Mutants of the solver met tests of 15 to 60 seconds
together, those that are likely to kill for little time first. So these shares are lower bounds.
"""
SEEDS = """\
With `--by seeds`, the sample is drawn from the files that decide when something fails, waits or is
full (`health`, host memory, judgements, queues, order, dispatch), and only the simulator's judge
may notice a mutant. Each seed runs alone and unmutated first, and a mutant meets only the seeds
that reach its function, likely killers first.
"""
NIGHTLY = """\
These survive the quick gate's tests and are killed by the same tests with three times as many
random cases. The nightly form draws ten times as many.
"""
#: How a reason begins that says that a mutant changes no decision.
NO_DECISION = ("equivalent", "words for people")


def write(folder: Path, page: Path) -> None:
    """Write the page; `rust.json` says of some survivors why no test can or need kill them."""
    known = json.loads((folder / "rust.json").read_text())
    campaigns = {}
    for kept in sorted(folder.glob("*.jsonl")):
        crate, _, by = kept.stem.rpartition("-")
        campaigns[crate, by] = list(outcomes(kept).values())
    seeds = campaigns.get(("saturn-engine", "seeds"), [])
    told = [SEEDS, *_deciding(seeds, known["reasons"], known["listed"]), ""]
    lines = [BEGINNING, *_table(campaigns, known["first"]), "", PARTLY, *told]
    for (crate, by), found in campaigns.items():
        if by == "nightly":
            lines += _killed_at_night(crate, found)
        elif by != "own":
            lines += _survivors(crate, by, found, known["reasons"])
    page.write_text("\n".join(lines).rstrip() + "\n")


def _table(
    campaigns: Mapping[tuple[str, str], list[Outcome]], first: Mapping[str, str]
) -> Iterator[str]:
    """`first`: how many of the same mutants were killed before tests were written for survivors."""
    yield "| crate | killed by | mutants tried | killed at first | killed now | share | time-outs |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for (crate, by), found in campaigns.items():
        survived = [one for one in found if not is_killed(one)]
        killed = len(found) - len(survived)
        slow = sum(one["outcome"] == "time-out" for one in found)
        share = 100 * killed / max(1, len(found))
        at_first = first.get(f"{crate}-{by}", "")
        numbers = f"{len(found)} | {at_first} | {killed} | {share:.1f}% | {slow}"
        yield f"| {crate} | {JUDGES[by]} | {numbers} |"


def _deciding(
    found: list[Outcome], reasons: Mapping[str, str], listed: Mapping[str, int]
) -> Iterator[str]:
    """The share that seeds kill of the mutants that change a decision, and that all tests kill."""
    survived = [one for one in found if not is_killed(one)]
    known = [_reason("seeds", one, reasons) for one in survived]
    num_vain = sum(reason.startswith(NO_DECISION) for reason in known)
    num_by_others = sum(reason.startswith("killed by") for reason in known)
    left, killed = len(found) - num_vain, len(found) - len(survived)
    both = killed + num_by_others
    yield textwrap.fill(
        f"cargo-mutants lists {listed['saturn-engine-seeds']} such mutants; {len(found)} were "
        f"tried. Of these, {num_vain} survivors change no decision: they are equivalent, or change "
        f"words for people. The seeds kill {killed} of the other {left}, "
        f"{100 * killed / max(1, left):.1f}%. Other tests of the quick gate kill {num_by_others} "
        f"more. That makes {both}, {100 * both / max(1, left):.1f}%.",
        100,
    )


def _reason(by: str, one: Outcome, reasons: Mapping[str, str]) -> str:
    """What is known of a survivor; empty if nothing is."""
    return reasons.get(f"{by} {one['key']}", reasons.get(one["key"], ""))


def _survivors(
    crate: str, by: str, found: list[Outcome], reasons: Mapping[str, str]
) -> Iterator[str]:
    yield f"## Survivors in {crate}, by {JUDGES[by]}\n"
    yield "| where | change | what is known |"
    yield "|---|---|---|"
    for one in sorted(found, key=lambda one: one["name"]):
        if not is_killed(one):
            known = _reason(by, one, reasons)
            if (num := one.get("seeds", ALL_SEEDS)) < ALL_SEEDS:
                known = known or f"only the first {num} seeds were tried"
            if (most_s := one.get("most_s")) is not None:
                known = known or f"only tests of {most_s} s together were tried"
            yield f"| {_place_and_change(crate, one)} | {known} |"
    yield ""


def _killed_at_night(crate: str, found: list[Outcome]) -> Iterator[str]:
    killed = [one for one in sorted(found, key=lambda one: one["name"]) if is_killed(one)]
    yield f"## What only more cases kill in {crate}\n"
    yield NIGHTLY
    yield "| where | change | test |"
    yield "|---|---|---|"
    for one in killed:
        yield f"| {_place_and_change(crate, one)} | `{one['by'].split(' ', 2)[-1]}` |"
    yield ""


def _place_and_change(crate: str, one: Outcome) -> str:
    """The first two cells of a mutant's row."""
    path, line, _, change = one["name"].split(":", 3)
    where = f"{path.removeprefix(f'crates/{crate}/src/')}:{line}"
    return f"{where} | `{change.strip().replace('|', chr(92) + '|')}`"
