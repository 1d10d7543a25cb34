"""Load a submitted task's functions in another program, such as one that exports its model."""

from __future__ import annotations

import importlib.util
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


def set_aside_others() -> None:
    """Forget modules of the user's own that would be found elsewhere now.

    For a process that has taken up a task's surroundings: it may have imported modules of the run
    that have the names of the task's modules. A module that would be found where it is stays, so
    that no class exists twice. Whoever has imported a forgotten module keeps it.
    """
    own = _own()
    moved = {top for top in {name.partition(".")[0] for name in own} if _is_elsewhere(top)}
    for name in own:
        if name.partition(".")[0] in moved:
            del sys.modules[name]


@contextmanager
def modules_of_program() -> Iterator[None]:
    """In this block, a program of other places runs here, whose modules may have any names.

    The caller has put the program's places first in `sys.path`. Modules that the program would find
    elsewhere are set aside, and those that it imports are forgotten afterwards.
    """
    own = _own()
    set_aside_others()
    kept = _own()
    try:
        yield
    finally:
        for name, module in _own().items():
            if kept.get(name) is not module:
                del sys.modules[name]
        sys.modules.update(own)


def _is_elsewhere(name: str) -> bool:
    """Whether an imported module would now be found in another file."""
    module = sys.modules.pop(name, None)
    if module is None:
        return False
    try:
        found = importlib.util.find_spec(name)
    finally:
        sys.modules[name] = module
    if found is None:
        return False
    # A package without a file of its own may have parts in several places.
    return found.origin is None or found.origin != getattr(module, "__file__", None)


def _own() -> dict[str, ModuleType]:
    """The imported modules that are the user's own, not Saturn's nor installed."""
    modules = list(sys.modules.items())
    return {
        name: module
        for name, module in modules
        if name.partition(".")[0] != "saturn" and is_own(name)
    }
