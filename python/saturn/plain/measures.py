"""Losses and metrics in JSON, which has neither NaN nor infinities.

These are written as the strings "nan", "inf" and "-inf", only by this module; the runtime's
counterpart is `crates/saturn-core/src/measure.rs`. null means that no value was reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

_NAMES = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def plain(value: Any) -> Any:
    """A number, or a mapping or list that contains numbers, in the form that JSON can hold."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def number(value: Any) -> float | None:
    """The number that `plain` wrote; None for a value that is no number."""
    if isinstance(value, str):
        return _NAMES.get(value)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number else None


def numbers(values: Mapping[str, Any]) -> dict[str, float | None]:
    """The numbers, by name, that `plain` wrote."""
    return {name: number(value) for name, value in values.items()}
