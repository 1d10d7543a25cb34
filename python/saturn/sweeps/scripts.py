"""Scripts of a sweep file: the arguments, the command and the task of one set of parameters.

Every parameter must reach the script as a value, and no two tasks may run the same command: a sweep
that breaks either rule is refused. Nothing here reads the file or starts a script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from saturn.plain.names import did_you_mean
from saturn.tasks.task import Task

_NAME = r"[A-Za-z_][A-Za-z0-9_.-]*"
#: `{name}` in arguments, environment variables and names, with all braces around it.
_BRACED = re.compile(rf"(\{{+)({_NAME})(\}}+)")
#: An argument that is only a parameter's value, or a flag with such a value.
_VALUE = re.compile(rf"(?:[^{{}}]*=)?\{{({_NAME})\}}")
#: An argument that is only a parameter's value.
_ALONE = re.compile(rf"\{{({_NAME})\}}")
#: Keys of the file that are for scripts only.
OF_SCRIPTS = (
    *("steps", "resume", "environment", "report_within_s", "stop_within_s", "trainer"),
    *("techniques", "knobs"),
)


def arguments(data: Mapping[str, Any], parameters: Mapping[str, Any]) -> list[str]:
    """The script's arguments; raises `ValueError` if a parameter would not reach the script."""
    given = [str(arg) for arg in data.get("args", [])]
    args = []
    for arg in given:
        alone = _ALONE.fullmatch(arg)
        values = parameters.get(alone[1]) if alone else None
        if isinstance(values, list):
            args += [text_of(each) for each in values]
        else:
            args.append(filled(arg, parameters, "args"))
    given += [str(value) for value in data.get("environment", {}).values()]
    in_text = {name: text for text in given for name in _parameters_in(text)}
    placed = {found.group(1) for text in given if (found := _VALUE.fullmatch(text))}
    placed |= set(data.get("only_in_text", []))
    if unknown := sorted(placed - in_text.keys()):
        raise ValueError(
            f"`only_in_text` has `{unknown[0]}`, which stands in neither `args` nor "
            f"`environment`; {did_you_mean(unknown[0], in_text)}"
        )
    for key, value in parameters.items():
        if key in in_text and key not in placed:
            raise ValueError(
                f"`{key}` would not reach the script as a value: it is a part of "
                f'`{in_text[key]}` alone. Add "--{key}={{{key}}}" to `args`; or, if that text is '
                f'all that the script needs of it, say `only_in_text = ["{key}"]`'
            )
        if key in placed or value is False:
            continue
        args.append(f"--{key}")
        if value is not True:
            args += [text_of(each) for each in (value if isinstance(value, list) else [value])]
    return args


def with_environment(data: Mapping[str, Any], parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The file's data, with parameters filled into the script's environment variables."""
    environment = {
        key: filled(str(value), parameters, f"environment.{key}")
        for key, value in data.get("environment", {}).items()
    }
    return {**data, "environment": environment}


def check_distinct(names: list[str], rows: list[list[str]], each: list[dict[str, Any]]) -> None:
    """Refuse two tasks that would run the same command in the same environment.

    `each` has the file's data with the environment of each task (`with_environment`).
    """
    first: dict[tuple[str, ...], str] = {}
    for name, row, data in zip(names, rows, each, strict=True):
        other = first.setdefault((*row, repr(data["environment"])), name)
        if other != name:
            raise ValueError(
                f"tasks `{other}` and `{name}` would run the same command, with the arguments "
                f"`{shlex.join(row)}`: what they differ in does not reach the script"
            )


def command(data: Mapping[str, Any], directory: Path, args: list[str]) -> str:
    """A shell command that runs the script with the same arguments, from any directory."""
    environment = [f"{key}={value}" for key, value in data.get("environment", {}).items()]
    python = ["python"] if Path(data["script"]).suffix == ".py" else []
    words = [*(["env", *environment] if environment else []), *python, data["script"], *args]
    is_here = directory.resolve() == Path.cwd()
    return (
        shlex.join(words) if is_here else f"cd {shlex.quote(str(directory))} && {shlex.join(words)}"
    )


def script_task(
    data: Mapping[str, Any], directory: Path, name: str | None, args: list[str]
) -> Task:
    """The task of a script; without a name it is named after the script."""
    options = {key: data[key] for key in OF_SCRIPTS if key in data}
    if "gpus" in data:
        options["gpu_range"] = data["gpus"]
    return Task.script(data["script"], args, name=name, cwd=directory, **options)


def suggested_task(data: dict[str, Any], directory: Path, parameters: dict[str, Any]) -> Task:
    """The task for values that a search suggests; the search names it later."""
    own = with_environment(data, parameters)
    return script_task(own, directory, None, arguments(data, parameters))


def filled(template: str, parameters: Mapping[str, Any], where: str) -> str:
    """The template with parameters in place of their names.

    Pairs of braces around a name stand for single ones, as in Python's `str.format`: `{{name}}` is
    the text `{name}`. All other braces stand for themselves, so that JSON needs no escapes.
    """

    def value(found: re.Match[str]) -> str:
        opening, name, closing = found.groups()
        depth = min(len(opening), len(closing))
        text = name
        if depth % 2:
            if name not in parameters:
                near = did_you_mean(name, parameters)
                raise ValueError(
                    f"`{where}` has `{name}`, which is no parameter; {near}. If the text "
                    f"`{{{name}}}` itself is meant, write `{{{{{name}}}}}`"
                )
            if isinstance(parameters[name], list) and where != "name":
                raise ValueError(
                    f"`{where}` has `{{{name}}}` within a text, and its value is a list; an "
                    f"argument that is `{{{name}}}` alone becomes several arguments"
                )
            text = text_of(parameters[name])
        literal = depth // 2
        return opening[depth:] + "{" * literal + text + "}" * literal + closing[depth:]

    return _BRACED.sub(value, template)


def _parameters_in(template: str) -> list[str]:
    """The names that `filled` replaces by values."""
    return [
        name
        for opening, name, closing in _BRACED.findall(template)
        if min(len(opening), len(closing)) % 2
    ]


def text_of(value: Any) -> str:
    """A value as text in an argument or a name."""
    if isinstance(value, list):
        return "_".join(map(text_of, value))
    return str(value).lower() if isinstance(value, bool) else str(value)
