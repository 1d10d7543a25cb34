"""Names that users give: how they become parts of paths, and which known name was meant.

For paths, the rule is that of `saturn-core`. A name that is safe in a path stays as it is; any
other name gets an id that is no safe name.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,127}")
#: The rule in words, for messages.
SAFE_RULE = "letters, digits and ._=+-, beginning with a letter or digit, at most 128 characters"


def is_path_safe(name: str) -> bool:
    """Whether `name` may be used in a path as it is."""
    return _SAFE.fullmatch(name) is not None


def slug(name: str, index: int) -> str:
    """The path component of the task called `name`, the `index`th of its workload."""
    return name if is_path_safe(name) else f"_task-{index}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """A hint with the nearest known name, or with all known names if none is near."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    return "known are " + (", ".join(f"`{each}`" for each in names) or "none")
