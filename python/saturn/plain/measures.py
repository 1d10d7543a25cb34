"""Losses and metrics in JSON, which has neither NaN nor infinities.

These are written as the strings "nan", "inf" and "-inf", here and nowhere else; the runtime's side
of it is `crates/saturn-core/src/measure.rs`. null is what nobody has told.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def plain(value: Any) -> Any:
    """A number, or whatever holds numbers by names, as JSON can hold it."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def number(value: Any) -> float | None:
    """The number that `plain` wrote; None of what is none."""
    if isinstance(value, str):
        return _NAMES.get(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def numbers(values: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers by names that `plain` wrote."""
    return {name: number(value) for name, value in values.items()}
