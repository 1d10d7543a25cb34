"""Load a submitted task's functions in another program, such as one that exports its model."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from saturn.tasks.sources import is_own
from saturn.tasks.surroundings import SUBMITTED, Surroundings


@contextmanager
def imports_of(task_dir: Path) -> Iterator[None]:
    """In this block, a task's functions find the modules that its submitter would find.

    Other tasks, and this program, may have other modules of the same names: they are set aside.
    """
    surroundings = Surroundings.read(task_dir / SUBMITTED)
    if surroundings is None:
        yield
        return
    before, own = sys.path[:], _own()
    for name in own:
        del sys.modules[name]
    surroundings.import_from()
    try:
        yield
    finally:
        sys.path[:] = before
        for name in _own():
            del sys.modules[name]
        sys.modules.update(own)


def _own() -> dict[str, ModuleType]:
    """The imported modules that are the user's own, not Saturn's nor installed."""
    modules = list(sys.modules.items())
    return {
        name: module
        for name, module in modules
        if name.partition(".")[0] != "saturn" and is_own(name)
    }
