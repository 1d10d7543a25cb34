"""All objects that a user's functions hold: in attributes, containers and closures."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from types import ModuleType
from typing import Any

import torch

#: Limits of the search: depth of nesting, entries of one container, objects in all.
_MOST_DEPTH, _MOST_ENTRIES, _MOST_SEEN = 4, 64, 4096


def objects_in(
    holders: tuple[Any, ...],
    *,
    is_end: Callable[[Any], bool],
    and_of: Callable[[Any], Iterable[Any]] = lambda value: (),
) -> Iterator[Any]:
    """The holders and all that they hold, each object once, the nearest first.

    What an object holds for which `is_end` is true is not looked at. `and_of` names what an object
    reaches beside what it holds.
    """
    seen: set[int] = set()
    pending = [(holder, 0) for holder in holders]
    while pending and len(seen) < _MOST_SEEN:
        value, depth = pending.pop(0)
        if id(value) in seen:
            continue
        seen.add(id(value))
        yield value
        if depth < _MOST_DEPTH and not is_end(value):
            pending += [(inner, depth + 1) for inner in (*_held(value), *and_of(value))]


def _held(value: Any) -> list[Any]:
    if isinstance(value, torch.Tensor | type | ModuleType):
        return []
    if isinstance(value, functools.partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, tuple | list):
        return list(value) if len(value) <= _MOST_ENTRIES else []
    if isinstance(value, dict):
        return list(value.values()) if len(value) <= _MOST_ENTRIES else []
    found = list(getattr(value, "__dict__", {}).values())[:_MOST_ENTRIES]
    if (owner := getattr(value, "__self__", None)) is not None:  # the object of a bound method
        found.append(owner)
    for cell in getattr(value, "__closure__", None) or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # the closure's cell is still empty
            continue
    return found
