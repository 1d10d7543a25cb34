"""Versions that must be equal on all nodes, because checkpoints and pickles travel between them.

The module only compares; `seating` refuses a node whose versions differ.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Mapping


def here() -> dict[str, str]:
    """The versions in this process."""
    return {
        "Saturn": _version("saturn"),
        "torch": _version("torch"),
        "Python": ".".join(map(str, sys.version_info[:2])),
    }


def difference(theirs: Mapping[str, str]) -> str | None:
    """How another process's versions differ from these, in words; None if they don't."""
    ours = here()
    differing = [
        f"{name} {theirs.get(name, 'of no version')} in place of {version}"
        for name, version in ours.items()
        if theirs.get(name) != version
    ]
    return " and ".join(differing) if differing else None


def _version(package: str) -> str:
    if package == "saturn":
        from saturn import _core

        return _core.__version__
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
