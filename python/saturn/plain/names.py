"""Names that come from users: how they become path components, and which one was meant.

For paths, the same rule as in `saturn-core`: names that are safe in a path stand for themselves,
others get an id that no safe name can be.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,127}")
#: The rule in words, for messages.
SAFE_RULE = "letters, digits and ._=+-, beginning with a letter or digit, at most 128 characters"


def is_path_safe(name: str) -> bool:
    """Whether `name` may stand in a path as it is."""
    return _SAFE.fullmatch(name) is not None


def slug(name: str, index: int) -> str:
    """The path component of the task called `name` at `index` of its workload."""
    return name if is_path_safe(name) else f"_task-{index}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The nearest of the names that are known, or all of them."""
    names = sorted(known)
    near = difflib.get_close_matches(name, names, n=1)
    if near:
        return f"did you mean `{near[0]}`?"
    return "known are " + (", ".join(f"`{each}`" for each in names) or "none")
