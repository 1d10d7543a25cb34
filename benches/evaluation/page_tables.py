"""Tables between markers in the pages: written there, or compared with what is there."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
NUMBER = re.compile(r"[+-]?\d+(?:\.\d+)?")
#: How far a number may be from the page's: another processor rounds its last bits otherwise.
MOST_APART = 0.01
#: The share of numbers that may be further away: a decision on such a bit may fall the other way.
MOST_OTHERS = 0.05

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
        """What differs from the page, in words; small differences of few numbers don't count."""
        written = {self.key(row): row for row in map(cells, self.split()[1].splitlines())}
        wrong, others, num_numbers = [], [], 0
        for row in self.rows(quick):
            before = written.get(self.key(row))
            if before is None:
                wrong.append(f"{self.name}: the page lacks the row {row}")
            elif shape(before) != shape(row):
                wrong.append(f"{self.name}: {before} is now {row}")
            else:
                pairs = list(zip(numbers(before), numbers(row), strict=True))
                num_numbers += len(pairs)
                told = (f"{self.name}: {row}: {was} is now {now}" for was, now in pairs)
                others += [text for text, pair in zip(told, pairs, strict=True) if far(*pair)]
        return wrong + (others if len(others) > MOST_OTHERS * num_numbers else [])

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
    return abs(float(was) - float(now)) > max(MOST_APART * abs(float(was)), 1.01 * last_digit)
