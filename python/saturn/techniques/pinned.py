"""A technique with knobs that a task has pinned to one or several allowed values.

Only the choice of knob sets changes. How the technique runs a model stays its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saturn.techniques.interface import Knobs, ParallelModel, Setting, Technique

if TYPE_CHECKING:
    from torch import nn

    from saturn.rank.gang import Gang


class Pinned(Technique):
    """`technique`, with each knob in `pins` limited to the values there; other knobs are free.

    A knob set that breaks a pin is replaced by copies of it with each of the allowed values.
    """

    def __init__(self, technique: Technique, pins: Mapping[str, list[Any]]) -> None:
        """Wrap a technique; `pins` has the allowed values of each pinned knob."""
        self._technique = technique
        self._pins = pins
        self.hints = technique.hints
        self.precision, self.precisions = technique.precision, technique.precisions
        self.runs_whole_model = technique.runs_whole_model

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        """The technique's own answer."""
        return self._technique.not_applicable(module, setting)

    def cuts_batches(self, setting: Setting, knobs: Knobs) -> bool:
        """The technique's own answer."""
        return self._technique.cuts_batches(setting, knobs)

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        """The technique's knob sets, changed to allowed values."""
        return self._allowed(self._technique.knob_sets(module, setting))

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        """The technique's rungs, changed to allowed values; no set occurs twice."""
        tried = list(self.knob_sets(module, setting))
        rungs = []
        for rung in self._technique.thriftier_knob_sets(module, setting):
            fresh = [knobs for knobs in self._allowed(rung) if knobs not in tried]
            tried += fresh
            if fresh:
                rungs.append(fresh)
        return rungs

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int | None:
        """The technique's own answer."""
        return self._technique.least_memory_bytes(module, setting, knobs)

    def retry_knobs(self, knobs: Knobs, error: str) -> Knobs | None:
        """The knobs that the technique would try next, if they are allowed."""
        again = self._technique.retry_knobs(knobs, error)
        return again if again is not None and self._allowed([again]) == [again] else None

    def changes_after(self, knobs: Knobs, model: ParallelModel) -> Knobs | None:
        """The technique's changes, if they are allowed."""
        changes = self._technique.changes_after(knobs, model)
        if changes is None:
            return None
        changed = {**knobs, **changes}
        return changes if self._allowed([changed]) == [changed] else None

    def changed(self, knobs: Knobs, changes: Knobs) -> Knobs:
        """The technique's own answer."""
        return self._technique.changed(knobs, changes)

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        """Parallelise as the technique does."""
        return self._technique.parallelise(module, gang, knobs)

    def _allowed(self, knob_sets: Iterable[Knobs]) -> list[Knobs]:
        found = list(knob_sets)
        for name, values in self._pins.items():
            found = [
                each
                for knobs in found
                for each in (
                    [knobs]
                    if name in knobs and knobs[name] in values
                    else [{**knobs, name: value} for value in values]
                )
            ]
        return [knobs for index, knobs in enumerate(found) if knobs not in found[:index]]
