"""The library: the techniques that Saturn may choose from, by name.

Built-in techniques are always in it. A registered class stays as long as the process. If the class
can be imported by path, that path is also stored in `$SATURN_HOME/library.json`, so that later
processes find it. Nothing is ever unpickled from there.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from saturn.errors import InvalidInput, UnknownTechnique
from saturn.plain.home import home
from saturn.plain.names import SAFE_RULE, is_path_safe
from saturn.scripts.command import TECHNIQUE as SCRIPT
from saturn.techniques import black_box
from saturn.techniques.built_in import BUILT_IN
from saturn.techniques.interface import Technique

_VERSION = 1
_registered: dict[str, type[Any]] = {}


@dataclass(frozen=True)
class Entry:
    """A technique in the form that a run needs."""

    name: str
    level: str  # "managed" or "black_box"
    import_path: str | None  # "module:Qualified.Name"; None if it must travel as a pickle
    technique: type[Any] | None  # None if only the import path is known


def register(name: str, technique: type[Any]) -> None:
    """Put a technique into the library under `name`, replacing an earlier one of that name.

    `technique` is a subclass of `BaseTechnique` (two functions that train by themselves) or of
    `saturn.techniques.Technique` (the managed interface). Raises `TypeError` and `ValueError`.
    """
    if not isinstance(name, str) or not is_path_safe(name):
        raise ValueError(f"technique name {name!r} must be {SAFE_RULE}")
    if name in BUILT_IN:
        raise ValueError(f"`{name}` is a built-in technique; choose another name")
    if name == SCRIPT:
        raise ValueError(f"`{name}` is the technique of scripts; choose another name")
    _level(technique)
    if issubclass(technique, black_box.BaseTechnique):
        black_box.check(technique)
    _registered[name] = technique
    remembered = _remembered()
    path = import_path_of(technique)
    if path != remembered.get(name):
        if path is None:
            remembered.pop(name, None)
        else:
            remembered[name] = path
        _remember(remembered)


def deregister(name: str) -> None:
    """Remove a technique from the library; raises `UnknownTechnique` if it isn't there."""
    if name in BUILT_IN:
        raise ValueError(
            f"`{name}` is a built-in technique, which is always there: it can't be removed"
        )
    remembered = _remembered()
    if name not in _registered and name not in remembered:
        raise _unknown(name)
    _registered.pop(name, None)
    if remembered.pop(name, None) is not None:
        _remember(remembered)


def retrieve(name: str) -> type[Any]:
    """The class of a technique; raises `UnknownTechnique`, which lists the known ones."""
    if name in _registered:
        return _registered[name]
    path = BUILT_IN.get(name) or _remembered().get(name)
    if path is None:
        raise _unknown(name)
    try:
        technique = _import(path)
        _level(technique)
    except Exception as error:
        raise InvalidInput(
            f"technique `{name}` is remembered as {path}, which can't be imported here: {error}; "
            f"saturn.deregister({name!r}) forgets it"
        ) from error
    return technique  # type: ignore[no-any-return]


def known() -> list[str]:
    """Names of all techniques, the built-in ones first."""
    return [*BUILT_IN, *sorted({*_registered, *_remembered()} - set(BUILT_IN))]


def select(names: Iterable[str] | None) -> list[Entry]:
    """The named techniques, in the form that a run needs; all by default.

    Raises `UnknownTechnique`. Without names, stored techniques that can't be imported here are left
    out, with a note on standard error.
    """
    if isinstance(names, str):
        raise TypeError(f"techniques is a string; it must be a list of names, such as [{names!r}]")
    if names is None:
        entries = []
        for name in known():
            try:
                entries.append(_entry(name))
            except InvalidInput as error:
                sys.stderr.write(f"saturn: {error}\n")
        return entries
    chosen = list(dict.fromkeys(names))
    if not chosen:
        raise InvalidInput(f"techniques is empty; the library holds {_quoted(known())}")
    return [_entry(name) for name in chosen]


def of_scripts() -> Entry:
    """The technique of scripts; it is not in the library, since no other task can use it."""
    return Entry(SCRIPT, "black_box", "saturn.worker.scripts.script:run", None)


def import_path_of(technique: type[Any]) -> str | None:
    """`module:Qualified.Name` if that leads to this very class; None for classes of `__main__`."""
    module_name, qualified_name = technique.__module__, technique.__qualname__
    if module_name == "__main__" or "<locals>" in qualified_name:
        return None
    path = f"{module_name}:{qualified_name}"
    try:
        return path if _import(path) is technique else None
    except (ImportError, AttributeError):
        return None


def _entry(name: str) -> Entry:
    if name in BUILT_IN:
        return Entry(name, "managed", BUILT_IN[name], None)
    technique = retrieve(name)
    return Entry(name, _level(technique), import_path_of(technique), technique)


def _level(technique: Any) -> str:
    if isinstance(technique, type):
        if issubclass(technique, black_box.BaseTechnique):
            return "black_box"
        if issubclass(technique, Technique):
            return "managed"
    what = technique.__name__ if isinstance(technique, type) else type(technique).__name__
    raise TypeError(
        f"{what} is no technique; it must be a subclass of "
        "saturn.core.executors.Technique.BaseTechnique or of saturn.techniques.Technique"
    )


def _import(path: str) -> Any:
    module_name, _, qualified_name = path.partition(":")
    found: Any = importlib.import_module(module_name)
    for name in qualified_name.split("."):
        found = getattr(found, name)
    return found


def _unknown(name: str) -> UnknownTechnique:
    held = _quoted(known())
    return UnknownTechnique(f"no technique is called `{name}`; the library holds {held}")


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _remembered() -> dict[str, str]:
    path = home() / "library.json"
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{path} can't be read: {error}; correct it or remove it") from error
    techniques = content.get("techniques") if isinstance(content, dict) else None
    if not isinstance(techniques, dict) or content.get("version") != _VERSION:
        raise InvalidInput(
            f'{path} must be a JSON object such as {{"version": {_VERSION}, "techniques": '
            '{"mine": "my_module:MyTechnique"}}; correct it or remove it'
        )
    return {str(name): str(value) for name, value in techniques.items()}


def _remember(techniques: dict[str, str]) -> None:
    path = home() / "library.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {"version": _VERSION, "techniques": dict(sorted(techniques.items()))}
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    scratch.write_text(json.dumps(content, indent=1) + "\n")
    scratch.replace(path)
