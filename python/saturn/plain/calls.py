"""Calls whose arguments don't fit a function: a sentence that says what would be right.

Python's own error names the missing argument, but not the given name that was meant for it.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec

from saturn.plain.names import did_you_mean

P = ParamSpec("P")
#: What a keyword of this name and value was probably meant for, among these names; or "".
Meant = Callable[[str, Any, Iterable[str]], str]


def explained(
    called: str, meant: Meant | None = None
) -> Callable[[Callable[P, None]], Callable[P, None]]:
    """Make an `__init__` tell of arguments that don't fit by a `TypeError` of one sentence.

    `called` is the name by which its class is called. `meant` looks at keywords that the class
    takes as `**kwargs` while an argument is missing.
    """

    def change(function: Callable[P, None]) -> Callable[P, None]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def checked(*args: P.args, **given: P.kwargs) -> None:
            try:
                signature.bind(*args, **given)
            except TypeError as error:
                wrong = _wrong(called, signature, len(args) - 1, given, meant)
                raise TypeError(wrong or f"{called}: {error}") from None
            function(*args, **given)

        return checked

    return change


def _wrong(
    called: str,
    signature: inspect.Signature,
    num_args: int,
    given: Mapping[str, Any],
    meant: Meant | None,
) -> str | None:
    """What does not fit, and what would; `num_args` are given by position, without `self`."""
    _, *parameters = signature.parameters.values()
    kinds = [one.kind for one in parameters]
    named = [one for one in parameters if one.kind is not one.VAR_KEYWORD]
    known = [one.name for one in named]
    by_position = [one.name for one in named if one.kind is one.POSITIONAL_OR_KEYWORD]
    if inspect.Parameter.VAR_KEYWORD not in kinds:
        for name in given:
            if name not in known:
                return f"{called} has no argument `{name}`; {did_you_mean(name, known)}"
    if num_args > len(by_position):
        return (
            f"{called} takes {len(by_position)} arguments without their names, and {num_args} are "
            "given; give the others by name"
        )
    for name in by_position[:num_args]:
        if name in given:
            return f"`{name}` is given to {called} twice: by its place, and by its name"
    there = {*by_position[:num_args], *given}
    missing = [one.name for one in named if one.default is one.empty and one.name not in there]
    if not missing:
        return None
    *others, last = (f"`{name}`" for name in missing)
    needed = f"{', '.join(others)} and {last}" if others else last
    return f"{called} needs {needed}{_likely(missing, known, given, meant)}"


def _likely(
    missing: list[str], known: list[str], given: Mapping[str, Any], meant: Meant | None
) -> str:
    """A hint if a keyword that would be one of `**kwargs` may have been meant for one missing."""
    if meant is not None:
        for name in given:
            near = "" if name in known else meant(name, given[name], missing)
            if near:
                return f": `{name}` is no argument of it{near}"
    return ""
