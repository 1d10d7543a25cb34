"""A sweep file: a script or a function with the values that it is trained with, as tasks.

The file is TOML; `sweep.schema.json` beside this module says what it may contain, for editors too.
Paths in it are relative to its own directory. An error in it raises `InvalidInput` before anything
is run.
"""

from __future__ import annotations

import importlib
import inspect
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from saturn.errors import InvalidInput
from saturn.plain.names import did_you_mean, is_path_safe
from saturn.scripts.task import check_there
from saturn.stoppers.given import stoppers_of
from saturn.sweeps.distinct import refuse_equal
from saturn.sweeps.grid import grid
from saturn.sweeps.schema import check
from saturn.sweeps.scripts import (
    OF_SCRIPTS,
    arguments,
    check_distinct,
    command,
    filled,
    script_task,
    suggested_task,
    text_of,
    with_environment,
)
from saturn.sweeps.search import Search
from saturn.tasks.prefixes import safe
from saturn.tasks.task import Task

#: Keys that make no sense beside `search`, and what to do instead.
_NOT_BESIDE_SEARCH = {
    "grid": "give its values as `choices` under `[search.space]`",
    "list": "give its values as `choices` under `[search.space]`",
    "when": "let the script or the function decide by its values",
    "name": "its tasks are called trial-0, trial-1 and so on",
}


@dataclass(frozen=True)
class Sweep:
    """What a file describes."""

    tasks: list[Task]  # empty if a search suggests them
    #: The parameters of each task.
    parameters: list[dict[str, Any]]
    #: Keywords of `saturn.orchestrate`.
    run: dict[str, Any]
    #: For each task of a script, an equal shell command; empty for functions.
    commands: list[str]
    #: The search that suggests tasks, if there is one.
    search: Search | None = None
    #: For a search with a script, makes the shell command for given parameters.
    command_of: Callable[[Mapping[str, Any]], str] | None = None


def read_sweep(path: str | os.PathLike[str]) -> tuple[list[Task], dict[str, Any]]:
    """The tasks of a sweep file, and the keywords of `orchestrate` that its `[run]` gives.

    Example: `tasks, options = saturn.read_sweep("sweep.toml")`, and then
    `saturn.orchestrate(tasks, **options)`, is `saturn sweep sweep.toml`. Reading runs nothing.

    Args:
        path: the file; paths in it are relative to its own directory (see docs/scripts.md).

    Raises:
        InvalidInput: the file can't be read, or has an error, or has a `[search]`, whose tasks are
            made while it runs.
    """
    found = read(Path(path))
    if found.search is not None:
        raise InvalidInput(
            f"{path}: the tasks of a `[search]` are made while it runs; use `saturn sweep`, or "
            "saturn.optuna.optimize"
        )
    return found.tasks, found.run


def schema() -> dict[str, Any]:
    """What a sweep file may contain, as a JSON Schema."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("sweep.schema.json").read_text())
    return loaded


def read(path: Path) -> Sweep:
    """Read a sweep file; raises `InvalidInput`, which names the file and the error in it."""
    try:
        text = path.read_text()
    except OSError as error:
        raise InvalidInput(f"{path} can't be read: {error.strerror}") from error
    try:
        data = _toml(text)
        check(data, schema())
        return _sweep(data, path.absolute().parent)
    except (ValueError, TypeError, FileNotFoundError) as error:
        raise InvalidInput(f"{path}: {error}") from error


def _toml(text: str) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        try:
            import tomli as tomllib  # type: ignore[import-not-found]
        except ImportError:
            raise InvalidInput(
                "a sweep file needs Python 3.11 or later, or the package tomli (pip install tomli)"
            ) from None
    try:
        return dict(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        raise ValueError(f"the file is not TOML: {error}") from error


def _sweep(data: dict[str, Any], directory: Path) -> Sweep:
    if ("script" in data) == ("function" in data):
        given = "both" if "script" in data else "neither"
        raise ValueError(
            f"the file has {given} of `script` and `function`; it must have exactly one of them"
        )
    if "function" in data:
        extra = [key for key in (*OF_SCRIPTS, "args", "only_in_text", "gpus") if key in data]
        if extra:
            raise ValueError(
                f"`{extra[0]}` is for scripts; a function sets that in the task that it returns"
            )
    if "search" in data:
        return _search(data, directory)
    combinations = _combinations(data)
    if not combinations:
        raise ValueError("`when` leaves out every combination; nothing is left to train")
    names = _names(data.get("name"), combinations)
    if "function" in data:
        tasks = [_made(data["function"], directory, one) for one in combinations]
        for task, name in zip(tasks, names, strict=True):
            if "name" in data or re.fullmatch(r"task-\d+", task.name):
                task.name = name
        refuse_equal(tasks, combinations, data["function"])
        commands = []
    else:
        rows = [arguments(data, one) for one in combinations]
        each = [with_environment(data, one) for one in combinations]
        check_distinct(names, rows, each)
        each_task = zip(each, names, rows, strict=True)
        tasks = [script_task(own, directory, name, row) for own, name, row in each_task]
        commands = [command(own, directory, row) for own, row in zip(each, rows, strict=True)]
    for task, parameters in zip(tasks, combinations, strict=True):
        task.parameters = {name: _plain(value) for name, value in parameters.items()}
    return Sweep(tasks, combinations, _run(data.get("run", {})), commands)


def _search(data: dict[str, Any], directory: Path) -> Sweep:
    """A file whose tasks are suggested while it runs, checked with two possible suggestions.

    A function may ignore a parameter for some values of the others, but must not ignore all.
    """
    for key, instead in _NOT_BESIDE_SEARCH.items():
        if key in data:
            raise ValueError(f"`{key}` and `search` can't stand in one file: {instead}")
    run = _run(data.get("run", {}))
    if "pool" in run:
        raise ValueError(
            "`pool` and `search` can't stand in one file: give the file to saturn submit"
        )
    if "function" in data:
        _function(data["function"], directory)
        search = Search.of(data["search"], partial(_made, data["function"], directory))
        one, other = search.ends
        if one != other:
            refuse_equal([search.make(one), search.make(other)], [one, other], data["function"])
        return Sweep([], [], run, [], search)
    search = Search.of(data["search"], partial(suggested_task, data, directory))
    arguments(data, search.ends[0])
    check_there(directory / data["script"])

    def command_of(parameters: Mapping[str, Any]) -> str:
        own = with_environment(data, parameters)
        return command(own, directory, arguments(data, parameters))

    return Sweep([], [], run, [], search, command_of)


def _run(options: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of `saturn.orchestrate`; errors in the stopper are raised here."""
    if "stopper" in options:
        stoppers_of(options["stopper"])
    return dict(options)


def _plain(value: Any) -> Any:
    """A value in a form that a report can hold."""
    return value if isinstance(value, bool | int | float | str) else text_of(value)


def _combinations(data: Mapping[str, Any]) -> list[dict[str, Any]]:
    rows = data.get("list", [{}])
    if not rows:
        raise ValueError("`list` is empty; give some values, or leave it out")
    of_grid = grid(data.get("grid", {}))
    found = [{**row, **one} for row in rows for one in of_grid]
    for number, condition in enumerate(data.get("when", []), 1):
        _check_condition(condition["if"], found, f"when[{number}].if")
        if ("grid" in condition) == condition.get("skip", False):
            raise ValueError(f"`when[{number}]` must have either `grid` or `skip = true`")
        changed = []
        for one in found:
            if not _matches(one, condition["if"]):
                changed.append(one)
            elif "grid" in condition:
                changed += [{**one, **more} for more in grid(condition["grid"])]
        found = changed
    # A condition that replaces values may make several combinations equal.
    return list({repr(sorted(one.items())): one for one in found}.values())


def _check_condition(condition: Mapping[str, Any], found: list[dict[str, Any]], where: str) -> None:
    known = {name for one in found for name in one}
    for name, wanted in condition.items():
        if name not in known:
            raise ValueError(
                f"`{where}` has `{name}`, which is no parameter; {did_you_mean(name, known)}"
            )
        values = [one[name] for one in found if name in one]
        for value in wanted if isinstance(wanted, list) else [wanted]:
            if value not in values:
                shown = list(dict.fromkeys(map(str, values)))
                raise ValueError(
                    f"`{where}.{name}` is {value!r}, which the parameter never is; "
                    f"{did_you_mean(str(value), shown)}"
                )


def _matches(one: Mapping[str, Any], condition: Mapping[str, Any]) -> bool:
    return all(
        name in one and one[name] in (wanted if isinstance(wanted, list) else [wanted])
        for name, wanted in condition.items()
    )


def _names(template: str | None, combinations: list[dict[str, Any]]) -> list[str]:
    """A name for each task: by the template, or made of the parameters that differ."""
    if template is not None:
        named = [filled(template, one, "name") for one in combinations]
    else:
        keys = dict.fromkeys(itertools.chain.from_iterable(combinations))
        texts = [[repr(one.get(key)) for one in combinations] for key in keys]
        differing = [key for key, text in zip(keys, texts, strict=True) if len(set(text)) > 1]
        named = [
            "-".join(f"{key}={text_of(one[key])}" for key in differing if key in one) or "task"
            for one in combinations
        ]
    plain = [safe(name) for name in named]
    taken, seen, unique = set(plain), set[str](), []
    for name in plain:
        given = name
        if name in seen:
            numbered = (f"{name}-{number}" for number in itertools.count(2))
            given = next(other for other in numbered if other not in taken)
            taken.add(given)
        seen.add(given)
        unique.append(given)
    return [name if is_path_safe(name) else f"task-{index}" for index, name in enumerate(unique, 1)]


def _function(named: str, directory: Path) -> Any:
    """Import the function of `file.py:name` or `module:name`."""
    place, _, name = named.partition(":")
    if not place or not name:
        raise ValueError(f'`function` is {named!r}; it must be "file.py:name" or "module:name"')
    if place.endswith(".py"):
        file = directory / place
        if not file.is_file():
            raise ValueError(f"`function` is in {file}, which is not there")
        directory, place = file.parent, file.stem
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))  # workers get the same path
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ValueError(f"`function` is in `{place}`, which can't be imported: {error}") from error
    _refuse_other(place, module, directory)
    found = getattr(module, name, None)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise ValueError(f"`{place}` has no function `{name}`; {did_you_mean(name, functions)}")
    return found


def _refuse_other(place: str, module: ModuleType, directory: Path) -> None:
    """Raise `ValueError` if this program has imported another module of this name before."""
    top = place.partition(".")[0]
    spec = PathFinder.find_spec(top, [str(directory)])
    if spec is None or spec.origin is None:
        return  # the module is not beside the file
    found = getattr(sys.modules.get(top, module), "__file__", None)
    if found is not None and Path(found).resolve() != Path(spec.origin).resolve():
        raise ValueError(
            f"`function` is in {spec.origin}, and this program has imported another module `{top}` "
            f"before: {found}. Give one of the two another name, or train each in a program of its "
            "own (saturn submit)"
        )


def _made(function: str, directory: Path, parameters: dict[str, Any]) -> Task:
    make = _function(function, directory)
    try:
        inspect.signature(make).bind(**parameters)
    except TypeError as error:
        raise ValueError(f"{function} does not take {parameters}: {error}") from error
    task = make(**parameters)
    if not isinstance(task, Task):
        raise TypeError(f"{function} returned a {type(task).__name__}; it must be a saturn.Task")
    return task
