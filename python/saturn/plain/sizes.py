"""Sizes of memory, as people write and read them.

A size is read in decimal units (MB) or binary units (MiB), and always written in decimal units.
"""

from __future__ import annotations

import re

from saturn.errors import InvalidInput

#: Bytes of each unit, decimal and binary.
_UNITS = {
    "b": 1,
    "kb": 10**3,
    "mb": 10**6,
    "gb": 10**9,
    "tb": 10**12,
    "kib": 2**10,
    "mib": 2**20,
    "gib": 2**30,
    "tib": 2**40,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d*)?)\s*([a-zA-Z]*)\s*")
#: A smaller size is a mistake, such as a forgotten unit: no model trains in it.
_LEAST_BYTES = 10**6
#: A larger size makes no sense.
_MOST_BYTES = 9 * 10**15


def parse_limit(field: str, value: int | str | None, *, unlimited: int | None) -> int | None:
    """As `parse_size`, where a person may also say "none" for no limit, which is `unlimited`."""
    if isinstance(value, str) and value.strip().lower() == "none":
        return unlimited
    return parse_size(field, value)


def parse_size(field: str, value: int | str | None) -> int | None:
    """The bytes of a size such as `"600MB"`, `"2GiB"` or 600_000_000; None stays None.

    Raises `TypeError` or `InvalidInput`, which names `field` and says what would be right.
    """
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError(
            f'{field} is a {type(value).__name__}; it must be a size such as "600MB" or "2GiB", '
            "or a whole number of bytes"
        )
    if isinstance(value, int):
        size = value
    else:
        match = _SIZE.fullmatch(value)
        factor = _UNITS.get(match[2].lower() or "b") if match else None
        if match is None or factor is None:
            raise InvalidInput(
                f'{field} is "{value}"; it must be a size such as "600MB" or "2GiB", or a whole '
                "number of bytes"
            )
        size = round(float(match[1]) * factor)
    if not _LEAST_BYTES <= size <= _MOST_BYTES:
        raise InvalidInput(f"{field} is {size} bytes; it must be at least 1MB (and below 9PB)")
    return size


def size_text(count: int) -> str:
    """A size in decimal units, as the console writes it: `412 MB`, `1.3 GB`."""
    for size, unit in ((1e12, "TB"), (1e9, "GB")):
        if count >= size * 0.9995:
            return f"{count / size:.1f} {unit}"
    if count >= 1e6 * 0.9995:
        return f"{count / 1e6:.0f} MB"
    return f"{count / 1e3:.0f} kB"
