"""A sweep file: a script or a function, and the values that it is trained with, as tasks.

The file is TOML; `sweep.schema.json` beside this module says what may stand in it, for editors too.
Paths in it are from its own directory. Whatever is wrong with it is `InvalidInput`, before anything
is run.
"""

from __future__ import annotations

import importlib
import itertools
import json
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saturn.errors import InvalidInput
from saturn.grid import grid
from saturn.names import did_you_mean, is_path_safe
from saturn.schema import check
from saturn.stoppers.given import stoppers_of
from saturn.task import Task

#: `{name}` in arguments and names.
_PLACEHOLDER = re.compile(r"\{([A-Za-z_][A-Za-z0-9_.-]*)\}")
#: What the file says of its scripts alone.
_OF_SCRIPTS = (
    *("steps", "resume", "environment", "report_within_s", "stop_within_s", "trainer"),
    *("techniques", "knobs"),
)


@dataclass(frozen=True)
class Sweep:
    """What a file describes."""

    tasks: list[Task]
    #: For each task its parameters.
    parameters: list[dict[str, Any]]
    #: Keywords of `saturn.orchestrate`.
    run: dict[str, Any]


def schema() -> dict[str, Any]:
    """What may stand in a sweep file, as a JSON Schema."""
    loaded: dict[str, Any] = json.loads(Path(__file__).with_name("sweep.schema.json").read_text())
    return loaded


def read(path: Path) -> Sweep:
    """Read a sweep file; raises `InvalidInput`, which names the file and what is wrong in it."""
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
    combinations = _combinations(data)
    if not combinations:
        raise ValueError("`when` leaves out every combination; nothing is left to train")
    names = _names(data.get("name"), combinations)
    if "function" in data:
        extra = [key for key in (*_OF_SCRIPTS, "args", "gpus") if key in data]
        if extra:
            raise ValueError(
                f"`{extra[0]}` is for scripts; a function sets that in the task that it returns"
            )
        make = _function(data["function"], directory)
        tasks = [_made(make, data["function"], one) for one in combinations]
        for task, name in zip(tasks, names, strict=True):
            if "name" in data or re.fullmatch(r"task-\d+", task.name):
                task.name = name
    else:
        tasks = [_script(data, directory, *one) for one in zip(names, combinations, strict=True)]
    for task, parameters in zip(tasks, combinations, strict=True):
        task.parameters = {name: _plain(value) for name, value in parameters.items()}
    return Sweep(tasks, combinations, _run(data.get("run", {})))


def _run(options: Mapping[str, Any]) -> dict[str, Any]:
    """Keywords of `saturn.orchestrate`; what is wrong with the stopper is told here."""
    if "stopper" in options:
        stoppers_of(options["stopper"])
    return dict(options)


def _plain(value: Any) -> Any:
    """A value as a report can hold it."""
    return value if isinstance(value, bool | int | float | str) else _text(value)


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
    # A condition that replaces values may make several the same.
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
    """A name for each task: as the template says, or of what differs."""
    if template is not None:
        named = [_filled(template, one, "name") for one in combinations]
    else:
        keys = dict.fromkeys(itertools.chain.from_iterable(combinations))
        texts = [[repr(one.get(key)) for one in combinations] for key in keys]
        differing = [key for key, text in zip(keys, texts, strict=True) if len(set(text)) > 1]
        named = [
            "-".join(f"{key}={_text(one[key])}" for key in differing if key in one) or "task"
            for one in combinations
        ]
    counts: dict[str, int] = {}
    unique = []
    for name in (re.sub(r"[^A-Za-z0-9._=+-]+", "_", name).lstrip("._=+-")[:100] for name in named):
        counts[name] = counts.get(name, 0) + 1
        unique.append(name if counts[name] == 1 else f"{name}-{counts[name]}")
    return [name if is_path_safe(name) else f"task-{index}" for index, name in enumerate(unique, 1)]


def _script(
    data: Mapping[str, Any], directory: Path, name: str, parameters: dict[str, Any]
) -> Task:
    args = [_filled(str(arg), parameters, "args") for arg in data.get("args", [])]
    placed = set(_PLACEHOLDER.findall(" ".join(map(str, data.get("args", [])))))
    for key, value in parameters.items():
        if key in placed or value is False:
            continue
        args.append(f"--{key}")
        if value is not True:
            args += [_text(each) for each in (value if isinstance(value, list) else [value])]
    options = {key: data[key] for key in _OF_SCRIPTS if key in data}
    if "gpus" in data:
        options["gpu_range"] = data["gpus"]
    return Task.script(data["script"], args, name=name, cwd=directory, **options)


def _filled(template: str, parameters: Mapping[str, Any], where: str) -> str:
    """The template with parameters in the place of their names."""

    def value(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in parameters:
            near = did_you_mean(name, parameters)
            raise ValueError(f"`{where}` has `{name}`, which is no parameter; {near}")
        return _text(parameters[name])

    return _PLACEHOLDER.sub(value, template)


def _text(value: Any) -> str:
    if isinstance(value, list):
        return "_".join(map(_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _function(named: str, directory: Path) -> Any:
    """The function of `file.py:name` or `module:name`."""
    place, _, name = named.partition(":")
    if not place or not name:
        raise ValueError(f'`function` is {named!r}; it must be "file.py:name" or "module:name"')
    if place.endswith(".py"):
        file = directory / place
        if not file.is_file():
            raise ValueError(f"`function` is in {file}, which is not there")
        directory, place = file.parent, file.stem
    if str(directory) not in sys.path:
        sys.path.insert(0, str(directory))  # workers have the same path
    try:
        module = importlib.import_module(place)
    except ModuleNotFoundError as error:
        raise ValueError(f"`function` is in `{place}`, which can't be imported: {error}") from error
    found = getattr(module, name, None)
    if not callable(found):
        functions = [key for key, value in vars(module).items() if callable(value)]
        raise ValueError(f"`{place}` has no function `{name}`; {did_you_mean(name, functions)}")
    return found


def _made(make: Any, function: str, parameters: dict[str, Any]) -> Task:
    try:
        task = make(**parameters)
    except TypeError as error:
        raise ValueError(f"{function} does not take {parameters}: {error}") from error
    if not isinstance(task, Task):
        raise TypeError(f"{function} returned a {type(task).__name__}; it must be a saturn.Task")
    return task
