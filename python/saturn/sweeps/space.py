"""Spaces of a sweep file's `[search.space]`: the sets from which parameters' values are drawn.

A space is a range (`low`, `high`, perhaps `step` or `log`) or a list of `choices`. A range has only
whole numbers if all its given numbers are whole. Errors are reported here, with their place in the
file. Optuna draws the values; this module does not import it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import optuna


@dataclass(frozen=True)
class Range:
    """Numbers from `low` to `high`, both included."""

    low: float
    high: float
    #: Distance of two neighbouring values; None for every number (for whole numbers: 1).
    step: float | None
    #: Whether values are log-uniform: each order of magnitude is equally likely.
    log: bool

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        """Suggest a value for one trial of a study."""
        if self.is_whole:
            low, high, step = int(self.low), int(self.high), int(self.step or 1)
            return trial.suggest_int(name, low, high, step=step, log=self.log)
        return trial.suggest_float(name, self.low, self.high, step=self.step, log=self.log)

    @property
    def is_whole(self) -> bool:
        """Whether its values are whole numbers."""
        return all(isinstance(one, int) for one in (self.low, self.high, self.step or 1))

    @property
    def ends(self) -> tuple[Any, Any]:
        """Two of its values, as far apart as possible."""
        return self.low, self.high

    def __str__(self) -> str:
        """The range in words."""
        numbers = "whole numbers, " if self.is_whole else ""
        how = ", log-uniform" if self.log else "" if self.step is None else f" by {self.step}"
        return f"{numbers}{self.low} to {self.high}{how}"


@dataclass(frozen=True)
class Choices:
    """One of a few values without an order or distance."""

    choices: tuple[Any, ...]

    def suggest(self, trial: optuna.Trial, name: str) -> Any:
        """Suggest a value for one trial of a study."""
        return trial.suggest_categorical(name, self.choices)

    @property
    def ends(self) -> tuple[Any, Any]:
        """Two of its values; the same twice if there is only one."""
        return self.choices[0], self.choices[-1]

    def __str__(self) -> str:
        """The choices in words."""
        return "one of " + ", ".join(map(json.dumps, self.choices))


Space = Range | Choices


def spaces_of(tables: Mapping[str, Mapping[str, Any]]) -> dict[str, Space]:
    """Each parameter's space; raises `ValueError`. The sweep file's schema has checked types."""
    if not tables:
        raise ValueError(
            "`search.space` is empty; give each parameter a range or choices, such as "
            "lr = { low = 1e-5, high = 1e-2, log = true }"
        )
    return {name: _space(table, f"search.space.{name}") for name, table in tables.items()}


def _space(table: Mapping[str, Any], place: str) -> Space:
    of_range = [key for key in ("low", "high", "step", "log") if key in table]
    if "choices" in table:
        if of_range:
            raise ValueError(
                f"`{place}` has `choices` and `{of_range[0]}`; give either `choices`, or a range "
                "by `low` and `high`"
            )
        return _choices(table["choices"], place)
    for end in ("low", "high"):
        if end not in table:
            raise ValueError(
                f"`{place}` has no `{end}`; give a range by `low` and `high`, or `choices`"
            )
    return _range(
        Range(table["low"], table["high"], table.get("step"), table.get("log", False)), place
    )


def _choices(values: list[Any], place: str) -> Choices:
    if not values:
        raise ValueError(f"`{place}.choices` is empty; give the values to choose from")
    for index, value in enumerate(values):
        if value in values[:index]:
            raise ValueError(f"`{place}.choices` has {value!r} twice; give each value once")
    return Choices(tuple(values))


def _range(space: Range, place: str) -> Range:
    for key, value in (("low", space.low), ("high", space.high), ("step", space.step)):
        if value is not None and not math.isfinite(value):
            raise ValueError(f"`{place}.{key}` is {value}; it must be a finite number")
    if space.low >= space.high:
        raise ValueError(
            f"`{place}` goes from {space.low} to {space.high}; `low` must be less than `high`"
        )
    if space.log and space.low <= 0:
        raise ValueError(
            f"`{place}.low` is {space.low} with `log = true`; a log-uniform range begins above 0"
        )
    if space.step is not None:
        _check_step(space, space.step, place)
    return space


def _check_step(space: Range, step: float, place: str) -> None:
    if space.log:
        raise ValueError(f"`{place}` has `step` and `log = true`; leave one of them out")
    low, high, exact = (Decimal(str(one)) for one in (space.low, space.high, step))
    last = low + (high - low) // exact * exact
    if last == low:
        raise ValueError(
            f"`{place}.step` is {step}, more than from `low` to `high`; it must be at most "
            f"{high - low}"
        )
    if last != high:
        raise ValueError(
            f"`{place}` goes from {low} by {step} to {last}, and never to {high}; give `high` as "
            f"{last} or {last + exact}"
        )
