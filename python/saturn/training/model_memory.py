"""Notice numbers that a model keeps as plain attributes, and that each forward changes.

A model may count its forwards, to anneal a part of its loss for example. If the count is no buffer,
no checkpoint has it, so it begins anew after each stop. The user is told once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

#: Steps that are watched, from an attempt's first one on. A number that changes in all of them goes
#: on changing. One that changes sometimes may be a cache, such as of the longest row so far.
_WATCHED = 3


class ModelMemory:
    """The plain numbers of one model's parts."""

    def __init__(self, module: nn.Module, note: Callable[[str], None]) -> None:
        self._module, self._note = module, note
        self._left = _WATCHED
        self._before = self._numbers()
        self._changing = set(self._before)

    def stepped(self) -> None:
        """Look at the numbers after a step."""
        if self._left == 0 or not self._changing:
            return
        self._left -= 1
        before, self._before = self._before, self._numbers()
        self._changing = {at for at in self._changing if self._before.get(at) != before[at]}
        if self._left == 0 and self._changing:
            part, name = min(self._changing)
            of = type(self._module.get_submodule(part)).__name__
            self._note(
                f"the model keeps `{name}` of {of} as a plain number, which each forward changes. "
                "No checkpoint has it, so it begins anew after each move and stop. Register it "
                "as a buffer, or return it by `get_extra_state`"
            )

    def _numbers(self) -> dict[tuple[str, str], Any]:
        return {
            (path, name): value
            for path, part in self._module.named_modules()
            if type(part).get_extra_state is nn.Module.get_extra_state
            for name, value in vars(part).items()
            if isinstance(value, int | float) and not name.startswith("_") and name != "training"
        }
