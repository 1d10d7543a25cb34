"""What a task allows: which techniques, and which values of their knobs.

Names and values are checked when the task is made, as far as that is possible without the run.
Whether the techniques and knobs exist is checked later, before the run writes anything to disk.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from saturn.errors import InvalidInput, UnknownTechnique
from saturn.techniques.built_in import KNOBS

if TYPE_CHECKING:
    from saturn.library import Entry
    from saturn.tasks.task import Task

#: The prefix of the name of a forbidden technique.
_NOT = "-"


def checked_techniques(techniques: Iterable[str] | None) -> list[str] | None:
    """Names of allowed techniques, or of forbidden ones with a minus. Raises `ValueError`."""
    if techniques is None:
        return None
    if isinstance(techniques, str):
        raise TypeError(f"techniques is a string; it must be a list of names, as [{techniques!r}]")
    names = sorted(set(techniques))
    for name in names:
        if not isinstance(name, str) or not name.removeprefix(_NOT):
            raise ValueError(f"techniques holds {name!r}; it must hold names of techniques")
    if not names:
        raise ValueError("techniques is empty; give the names that are allowed, or None for all")
    if len({name.startswith(_NOT) for name in names}) > 1:
        raise ValueError(
            f"techniques is {names}: some are allowed and some (with `-`) forbidden; give either "
            "those that are allowed, or those that are not"
        )
    return names


def checked_knobs(
    knobs: Mapping[str, Mapping[str, Any]] | None,
) -> dict[str, dict[str, list[Any]]]:
    """The allowed values, by technique and knob. Raises `TypeError` or `ValueError`."""
    checked: dict[str, dict[str, list[Any]]] = {}
    if knobs is not None and not isinstance(knobs, Mapping):
        raise TypeError(f"knobs is a {type(knobs).__name__}; it must map techniques to their knobs")
    for technique, of in (knobs or {}).items():
        if not isinstance(of, Mapping):
            raise TypeError(
                f"knobs of `{technique}` is a {type(of).__name__}; it must map knobs to values, as "
                f'{{"{technique}": {{"a_knob": True}}}}'
            )
        for name, value in of.items():
            values = list(value) if isinstance(value, list | tuple) else [value]
            if not values:
                raise ValueError(
                    f"knob `{name}` of `{technique}` has no value that is allowed; leave it out "
                    "for all"
                )
            try:
                plain = json.loads(json.dumps(values, allow_nan=False))
            except (TypeError, ValueError) as error:
                raise ValueError(
                    f"knob `{name}` of `{technique}` must be plain data, or a list of it: {error}"
                ) from error
            checked.setdefault(str(technique), {})[str(name)] = plain
    return checked


def check_allowed(tasks: Iterable[Task], entries: Iterable[Entry], known: Iterable[str]) -> None:
    """Refuse tasks that name unknown techniques or knobs, or that allow no technique of the run.

    `entries` are the run's techniques; `known` are the names of all techniques in the library.
    """
    run = {entry.name: entry for entry in entries}
    all_known = sorted({*known, *run})
    for task in tasks:
        if hasattr(task, "script_definition"):
            continue  # a script has its own technique
        for name in [each.removeprefix(_NOT) for each in task.techniques or []] + list(task.knobs):
            if name not in all_known:
                held = _quoted(all_known)
                raise UnknownTechnique(
                    f"task `{task.name}`: no technique is called `{name}`; the library holds {held}"
                )
        described = described_allowed(task)
        allowed = described["techniques"]
        left = [
            name
            for name in run
            if (allowed is None or name in allowed) and name not in described["not_techniques"]
        ]
        if not left:
            raise InvalidInput(
                f"task `{task.name}` allows none of the run's techniques: {_quoted(run)}"
            )
        for name, knobs in task.knobs.items():
            if name in run and run[name].level == "black_box":
                raise InvalidInput(
                    f"task `{task.name}`: the knobs of `{name}` are chosen by its own `search`, "
                    "and can't be pinned"
                )
            there = KNOBS.get(name)
            for knob in knobs:
                if there is not None and knob not in there:
                    raise InvalidInput(
                        f"task `{task.name}`: `{name}` has no knob `{knob}`; it has "
                        f"{_quoted(sorted(there))}"
                    )


def described_allowed(task: Task) -> dict[str, Any]:
    """What a task allows, in the form for the runtime."""
    names = task.techniques or []
    forbidden = [name.removeprefix(_NOT) for name in names if name.startswith(_NOT)]
    return {
        "techniques": None if not names or forbidden else names,
        "not_techniques": forbidden,
        "knobs": task.knobs,
    }


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)
