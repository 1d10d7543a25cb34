"""Turn the value of `loggers=` into loggers that work here, or raise one clear line.

Every logger is checked in the user's process, before anything of the run is on disk. A name always
means Saturn's own logger if there is one of that name.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from saturn.errors import InvalidInput
from saturn.loggers.interface import Logger
from saturn.plain.names import SAFE_RULE, did_you_mean, is_path_safe

#: The group of entry points by which other packages provide loggers.
GROUP = "saturn.loggers"
#: Saturn's own loggers: no entry point replaces them.
_OWN = {
    "mlflow": "saturn.loggers.mlflow:MLflow",
    "trackio": "saturn.loggers.trackio:Trackio",
    "wandb": "saturn.loggers.wandb:WandB",
}


def checked(loggers: Iterable[str | Logger] | None) -> list[Logger]:
    """The loggers, each checked by its own `check`; an empty list if None was given.

    Raises `InvalidInput` or `TypeError`.
    """
    if loggers is None:
        return []
    if isinstance(loggers, str | Logger):
        given = repr(loggers) if isinstance(loggers, str) else f"{type(loggers).__name__}(…)"
        raise TypeError(f"loggers must be a list, such as [{given}]")
    found: dict[str, Logger] = {}
    for one in loggers:
        logger = _named(one) if isinstance(one, str) else one
        if not isinstance(logger, Logger):
            kind = type(logger).__name__
            raise TypeError(
                f"loggers holds a {kind}; it must hold names and saturn.loggers.Logger objects"
            )
        if not isinstance(logger.name, str) or not is_path_safe(logger.name):
            raise InvalidInput(f"the logger's name {logger.name!r} must be {SAFE_RULE}")
        if logger.name in found:
            raise InvalidInput(f"two of loggers are called `{logger.name}`; give one another name=")
        logger.check()
        found[logger.name] = logger
    return list(found.values())


def _named(name: str) -> Any:
    others = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in _OWN and name not in others:
        known = sorted({*_OWN, *others})
        near = did_you_mean(name, known)
        listed = ", ".join(f"`{each}`" for each in known)
        raise InvalidInput(
            f"there is no logger `{name}`{f' ({near})' if near else ''}; there are {listed}, and "
            f"a package may bring more as entry points of {GROUP}"
        )
    try:
        make = _own(_OWN[name]) if name in _OWN else _brought(others[name])
        return make()
    except InvalidInput:
        raise
    except Exception as error:
        raise InvalidInput(f"the logger `{name}` can't be made: {error}") from error


def _own(path: str) -> Callable[[], Any]:
    module, _, attribute = path.partition(":")
    made: Callable[[], Any] = getattr(importlib.import_module(module), attribute)
    return made


def _brought(entry: EntryPoint) -> Callable[[], Any]:
    made: Callable[[], Any] = entry.load()
    return made
