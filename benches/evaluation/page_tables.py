"""Tables between markers in the pages: written there, or compared with what is there.

Each number of a row that is made again must be the page's, up to 2% of the page's number or one in
its last digit. The simulator draws from seeds and counts its search in moves, so the same program
gives the same numbers to the last digit on one machine. Processors and libraries of mathematics
round the last bits of a power or a logarithm differently, and a decision that hangs on such a bit
may fall the other way. The 2% are room for that. No number may differ by more: what the text says
beside the table may then be wrong, so a person has to look.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
#: The part of the page's number by which a number may differ from it.
MOST_APART = 0.02

Rows = Iterator[list[str]]


@dataclass(frozen=True)
class Table:
    """A table of a page."""

    name: str
    page: str
    header: list[str]
    #: The rows; given True, only those that the quick check makes again.
    rows: Callable[[bool], Rows]
    #: The number of first cells that name a row.
    num_keys: int = 1
    #: Whether its numbers come from a solve with a time limit, which differ between machines.
    is_timed: bool = False

    @property
    def path(self) -> Path:
        return ROOT / "docs" / "evaluation" / self.page

    def split(self) -> tuple[str, str, str]:
        """The page before the table, the table, and the page after it."""
        begin, end = (f"<!-- table {self.name}: {word} -->\n" for word in ("begin", "end"))
        before, found, rest = self.path.read_text().partition(begin)
        table, ended, after = rest.partition(end)
        if not found or not ended:
            raise SystemExit(f"{self.path}: the table `{self.name}` has no place: {begin}{end}")
        return before + begin, table, end + after

    def write(self) -> None:
        """Makes the whole table, and puts it into its page."""
        made = [self.header, ["---"] * len(self.header), *self.rows(False)]
        before, _, after = self.split()
        self.path.write_text(before + "".join(line(row) for row in made) + after)

    def differences(self, *, quick: bool) -> list[str]:
        """What differs from the page, in words."""
        written = {self.key(row): row for row in map(cells, self.split()[1].splitlines())}
        wrong, made = [], set()
        for row in self.rows(quick):
            made.add(self.key(row))
            before = written.get(self.key(row))
            if before is None:
                wrong.append(f"{self.name}: the page lacks the row {row}")
            elif shape(before) != shape(row):
                wrong.append(f"{self.name}: {before} is now {row}")
            else:
                pairs = zip(numbers(before), numbers(row), strict=True)
                told = f"{self.name}: {row}:"
                wrong += [f"{told} {was} is now {now}" for was, now in pairs if far(was, now)]
        if not quick:
            head = {self.key(self.header), self.key(["---"] * len(self.header))}
            gone = [key for key in written if key not in made | head]
            wrong += [f"{self.name}: the page has the row {key}, which is not made" for key in gone]
        return wrong

    def key(self, row: list[str]) -> tuple[str, ...]:
        return tuple(row[: self.num_keys])


def line(row: list[str]) -> str:
    """A row in Markdown."""
    return f"| {' | '.join(row)} |\n"


def cells(text: str) -> list[str]:
    """The cells of a row in Markdown."""
    return [cell.strip() for cell in text.strip().strip("|").split("|")]


def shape(row: list[str]) -> str:
    """Its words, without numbers."""
    return NUMBER.sub("#", "|".join(row))


def numbers(row: list[str]) -> list[str]:
    """Its numbers, as they stand there."""
    return NUMBER.findall("|".join(row))


def far(was: str, now: str) -> bool:
    """Whether two numbers differ by more than rounding and `MOST_APART`."""
    last_digit = 10.0 ** -len(was.partition(".")[2])
    room = max(MOST_APART * abs(float(was)), last_digit)
    return abs(float(was) - float(now)) > 1.001 * room  # decimals are not exact
