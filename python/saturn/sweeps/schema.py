"""Check data by a JSON Schema; only the keywords that Saturn's own schemas use are known.

Editors read the same schema. The first error is reported in one line: its place, what should be
there, and for an unknown name the nearest known one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saturn.plain.names import did_you_mean

_TYPES: dict[str, tuple[Any, str]] = {
    "object": (Mapping, "a table"),
    "array": (list, "a list"),
    "string": (str, "a text"),
    "integer": (int, "a whole number"),
    "number": ((int, float), "a number"),
    "boolean": (bool, "true or false"),
}


def check(value: Any, schema: Mapping[str, Any], where: str = "") -> None:
    """Raise `ValueError` if a value doesn't match its schema; `where` is the value's place."""
    types = schema.get("type", [])
    types = [types] if isinstance(types, str) else types
    if not any(_is_of(value, one) for one in types):
        wanted = " or ".join(_TYPES[one][1] for one in types)
        raise ValueError(f"`{where}` is {value!r}; it must be {wanted}")
    if "enum" in schema and value not in schema["enum"]:
        raise ValueError(f"`{where}` is {value!r}; {did_you_mean(value, schema['enum'])}")
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, above = schema.get("minimum"), schema.get("exclusiveMinimum")
        if least is not None and value < least:
            raise ValueError(f"`{where}` is {value!r}; it must be at least {least}")
        if above is not None and value <= above:
            raise ValueError(f"`{where}` is {value!r}; it must be more than {above}")
    if isinstance(value, list):
        for number, item in enumerate(value, 1):
            check(item, schema.get("items", {"type": list(_TYPES)}), f"{where}[{number}]")
    if isinstance(value, Mapping):
        _check_table(value, schema, where)


def _check_table(table: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> None:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in table.items():
        place = f"{where}.{name}" if where else name
        if name in known:
            check(item, known[name], place)
        elif others is False:
            raise ValueError(f"there is no `{place}`; {did_you_mean(name, known)}")
        elif isinstance(others, Mapping):
            check(item, others, place)
    # Looked for last: a mistyped name is told of as such.
    for name in schema.get("required", ()):
        if name not in table:
            raise ValueError(f"`{where}` has no `{name}`, which it must have")


def _is_of(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return isinstance(value, _TYPES[kind][0])
