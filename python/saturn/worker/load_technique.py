"""Load an attempt's technique: import it by path, or unpickle it from the run directory.

A class of the wrong kind raises `TypeError`. Nothing here runs a technique.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Iterable
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from saturn.tasks.definition import TaskDefinition
from saturn.techniques.interface import Technique
from saturn.techniques.pinned import Pinned
from saturn.worker.spec import TechniqueRef


def load_ahead(refs: Iterable[TechniqueRef]) -> None:
    """Load classes before a task's own modules can be found, which may have the same names.

    A class that can't be loaded is no error yet: whoever needs the class is told.
    """
    for ref in refs:
        with contextlib.suppress(Exception):
            load_class(ref)


@functools.cache
def load_class(ref: TechniqueRef) -> type[Any]:
    """The technique's class, loaded once; `TypeError` if the reference leads to something else."""
    if ref.import_path is not None:
        module_name, _, qualified_name = ref.import_path.partition(":")
        found: Any = importlib.import_module(module_name)
        for name in qualified_name.split("."):
            found = getattr(found, name)
    elif ref.pickle_path is not None:
        # The pickle is safe: this run's own front end wrote it into its private directory.
        found = cloudpickle.loads(ref.pickle_path.read_bytes())
    else:
        raise ValueError(f"technique `{ref.name}` has neither an import path nor a pickle")
    if not isinstance(found, type):
        raise TypeError(f"technique `{ref.name}` is a {type(found).__name__}, not a class")
    return found


def of_task(ref: TechniqueRef, definition: TaskDefinition) -> Technique:
    """An instance of a managed technique, with the task's hints, precision and pinned knobs."""
    technique = managed(ref)
    technique.hints, technique.precision = definition.hints, definition.precision
    pins = definition.knobs.get(ref.name)
    return Pinned(technique, pins) if pins else technique


def managed(ref: TechniqueRef) -> Technique:
    """An instance of a managed technique."""
    technique = load_class(ref)()
    if not isinstance(technique, Technique):
        raise TypeError(
            f"technique `{ref.name}` is a {type(technique).__name__}, which is not a "
            "saturn.techniques.Technique"
        )
    return technique
