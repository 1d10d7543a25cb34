"""Combinations of values for sweeps: `saturn.grid`. It makes dictionaries, and no tasks."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from typing import Any


def grid(
    values: Mapping[str, Any] | None = None,
    /,
    *,
    where: Callable[[dict[str, Any]], bool] | None = None,
    **more: Any,
) -> list[dict[str, Any]]:
    """Every combination of the values, as dictionaries; the last name changes fastest.

    Args:
        values: names, each with a list of values; a value that is no list is in all combinations.
        where: a function of a combination; only combinations for which it returns true are kept.
        more: more names with values, as keywords.

    Raises:
        ValueError: a list has no values.

    Example: `[Task.script("train.py", ["--lr", it["lr"]]) for it in saturn.grid(lr=[0.1, 0.2])]`.
    Lists of combinations are joined by `+`.
    """
    named = {**(values or {}), **more}
    lists = {name: _values(name, given) for name, given in named.items()}
    combinations = (
        dict(zip(lists, combination, strict=True))
        for combination in itertools.product(*lists.values())
    )
    return [one for one in combinations if where is None or where(one)]


def _values(name: str, given: Any) -> list[Any]:
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        return [given]
    values = list(given)
    if not values:
        raise ValueError(f"`{name}` has no values; give some, or leave it out")
    return values
