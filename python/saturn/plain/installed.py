"""Tell installed files from the user's own."""

from __future__ import annotations

import sysconfig
from pathlib import Path

#: Names of the directories that contain installed packages, and paths of the standard library.
_PACKAGES = {"site-packages", "dist-packages"}
_STANDARD = tuple(sysconfig.get_path(key) for key in ("stdlib", "platstdlib"))


def is_installed(path: str) -> bool:
    """Whether a file belongs to Python, an installed package or Saturn, not to the user."""
    return is_of_package(path) or path.startswith((*_STANDARD, str(Path(__file__).parents[1])))


def is_of_package(path: str | None) -> bool:
    """Whether a file belongs to an installed package; Python's own files do not."""
    return path is not None and not _PACKAGES.isdisjoint(Path(path).parts)
