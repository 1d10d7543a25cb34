"""Writes what became of a sample of mutants as a page of tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol


class Mutant(Protocol):
    """What the page needs of a mutant."""

    name: str
    module: str
    function: str
    operator: str
    line: int

    def change(self) -> str:
        """The mutated line."""


BEGINNING = """\
# Which wrong changes of the code for training do the tests notice?

A mutant is the code with one small change: a condition negated, a number off by one, a call left
out. A test suite kills a mutant if a test fails under it. If the code of a survivor were wrong,
nobody would notice. `make mutants-python` makes this page. It draws a fixed sample of the mutants
of `saturn.training`, `saturn.data` and `saturn.checkpoint`, and tries each on those tests of the
quick gate that reach the changed block, in pytest's process or in ranks. The nearest tests run
first. What survives them meets tests of other files. Only so many seconds of tests are run for a
mutant, so a test that was left out may still kill a survivor. A test that does not end counts as a
kill.
"""
#: The key, among the reasons, of what was measured before survivors got tests.
AT_FIRST = "at first"
NOT_REACHED = "no quick test reaches the block"


def page(
    chosen: Sequence[Mutant], answers: Mapping[str, Any], reasons: Mapping[str, str], num_drawn: int
) -> str:
    """The page; `reasons` says of some survivors why no test can or need kill them."""
    tried = [mutant for mutant in chosen if mutant.name in answers]
    return "\n".join(
        [
            BEGINNING,
            *_table(tried, answers, num_drawn, reasons.get(AT_FIRST, "")),
            *_left(tried, answers, reasons),
            "",
        ]
    )


def _table(
    tried: Sequence[Mutant], answers: Mapping[str, Any], num_drawn: int, at_first: str
) -> Iterator[str]:
    num_slow = sum(answers[mutant.name]["by"] == "time" for mutant in tried)
    yield f"Of the {num_drawn} mutants of the sample, {len(tried)} were tried. {at_first}"
    yield f"Of the kills, {num_slow} are tests that did not end.\n"
    yield "| module | mutants | killed | share |"
    yield "|---|---:|---:|---:|"
    for module in sorted({mutant.module for mutant in tried}):
        yield _row(f"`{module}`", [one for one in tried if one.module == module], answers)
    yield _row("all", tried, answers) + "\n"


def _row(name: str, mutants: Sequence[Mutant], answers: Mapping[str, Any]) -> str:
    killed = sum(answers[mutant.name]["killed"] for mutant in mutants)
    return f"| {name} | {len(mutants)} | {killed} | {killed / max(1, len(mutants)):.0%} |"


def _left(
    tried: Sequence[Mutant], answers: Mapping[str, Any], reasons: Mapping[str, str]
) -> Iterator[str]:
    yield "## Survivors\n"
    yield "| where | change | tests tried | what is known |"
    yield "|---|---|---:|---|"
    for mutant in sorted(tried, key=lambda one: (one.module, one.line)):
        answer = answers[mutant.name]
        if not answer["killed"]:
            known = reasons.get(mutant.name, "" if answer["tests"] else NOT_REACHED)
            if "wider" not in answer["passes"]:
                known = known or "only its nearest tests were tried"
            change = mutant.change().replace("|", "\\|")
            where = f"`{mutant.module}.{mutant.function}`"
            yield f"| {where} | {mutant.operator}: `{change}` | {answer['tests']} | {known} |"
