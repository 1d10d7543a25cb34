"""Numbers that a user gives, refused by the names that they were given under."""

from __future__ import annotations

import math

from saturn.errors import InvalidInput

#: Beyond this no count means anything.
_LARGEST = 2**31 - 1


def check_whole(field: str, value: int | None, *, least: int) -> None:
    """Raise `TypeError` or `InvalidInput` unless it is a whole number from `least` on, or None."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be a whole number")
    if value < least:
        raise InvalidInput(f"{field} is {value}; it must be at least {least}")
    if value > _LARGEST:
        raise InvalidInput(f"{field} is {value}; it must be at most {_LARGEST}")


def check_seconds(field: str, value: float) -> None:
    """Raise `TypeError` or `InvalidInput` unless it is a positive number of seconds."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be a number of seconds")
    if not (math.isfinite(value) and value > 0):
        raise InvalidInput(f"{field} is {value}; it must be a positive number of seconds")
