"""Check numbers and flags that a user gives; errors name the argument.

A wrong type raises `TypeError`, and a number out of range `InvalidInput`.
"""

from __future__ import annotations

import math

from saturn.errors import InvalidInput

#: The largest number that counts as a sensible argument.
_LARGEST = 2**31 - 1


def check_flag(field: str, value: bool) -> None:
    """Raise `TypeError` unless it is True or False; a text such as "no" would count as true."""
    if not isinstance(value, bool):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be True or False")


def check_whole(field: str, value: int | None, *, least: int) -> None:
    """Raise `TypeError` or `InvalidInput` unless it is None or a whole number from `least` on."""
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


def check_number(field: str, value: float) -> None:
    """Raise `TypeError` unless it is a number."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be a number")
