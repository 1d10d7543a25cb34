"""Notice streams that keep something from pass to pass, and so begin anew after a stop.

A sampler's earlier passes can be made again (see `sampling.catch_up`). A stream's would take as
long as the training so far, so the user is told instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

_NUMBERS = (bool, int, float)


class StreamMemory:
    """Numbers, and lists of numbers or texts, in the attributes of a stream."""

    def __init__(self, loader: Any) -> None:
        self._before = None if hasattr(loader, "__next__") else _memory_of(loader)

    def passed(self, loader: Any, note: Callable[[str], None]) -> None:
        """Tell by `note` what has changed in a pass; it is told once."""
        before, self._before = self._before, None
        if before is None:
            return
        now = _memory_of(loader)
        changed = [name for name, value in before.items() if now.get(name, value) != value]
        if changed:
            note(
                f"the task's stream changes its own `{changed[0]}` in each pass, and begins anew "
                "after each move and each stop: samples would be repeated or left out. Let it have "
                "`set_epoch(epoch)`, and draw what it needs from the epoch's number"
            )


def _memory_of(loader: Any) -> dict[str, Any]:
    holder = getattr(loader, "dataset", loader)
    if callable(getattr(holder, "set_epoch", None)):
        return {}
    return {
        name: list(value) if isinstance(value, list) else value
        for name, value in getattr(holder, "__dict__", {}).items()
        if isinstance(value, _NUMBERS) or _is_list(value)
    }


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], (*_NUMBERS, str))
