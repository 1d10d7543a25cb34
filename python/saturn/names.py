"""Names that come from users, and how they become path components.

The same rule as in `saturn-core`: names that are safe in a path stand for themselves, others get
an id that no safe name can be.
"""

from __future__ import annotations

import re

_SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._=+-]{0,127}")
#: The rule in words, for messages.
SAFE_RULE = "letters, digits and ._=+-, beginning with a letter or digit, at most 128 characters"


def is_path_safe(name: str) -> bool:
    """Whether `name` may stand in a path as it is."""
    return _SAFE.fullmatch(name) is not None


def slug(name: str, index: int) -> str:
    """The path component of the task called `name` at `index` of its workload."""
    return name if is_path_safe(name) else f"_task-{index}"
