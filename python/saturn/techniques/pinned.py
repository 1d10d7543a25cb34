"""A technique whose knobs a task has pinned: it chooses among the values that are allowed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from saturn.techniques.interface import Knobs, ParallelModel, Setting, Technique

if TYPE_CHECKING:
    from torch import nn

    from saturn.rank.gang import Gang


class Pinned(Technique):
    """`technique` with knobs that have one of the values in `pins`, each; all others are free.

    A knob set of the technique's own that breaks a pin is not tried; in its place comes the same
    with each of the allowed values.
    """

    def __init__(self, technique: Technique, pins: Mapping[str, list[Any]]) -> None:
        """Take what a technique would do, and the values that its knobs may have."""
        self._technique = technique
        self._pins = pins
        self.hints = technique.hints
        self.precision, self.precisions = technique.precision, technique.precisions
        self.runs_whole_model = technique.runs_whole_model

    def not_applicable(self, module: nn.Module, setting: Setting) -> str | None:
        """As the technique says."""
        return self._technique.not_applicable(module, setting)

    def cuts_batches(self, setting: Setting, knobs: Knobs) -> bool:
        """As the technique says."""
        return self._technique.cuts_batches(setting, knobs)

    def knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Knobs]:
        """The technique's own, as far as they are allowed."""
        return self._allowed(self._technique.knob_sets(module, setting))

    def thriftier_knob_sets(self, module: nn.Module, setting: Setting) -> Sequence[Sequence[Knobs]]:
        """The technique's own, as far as they are allowed; none twice."""
        tried = list(self.knob_sets(module, setting))
        rungs = []
        for rung in self._technique.thriftier_knob_sets(module, setting):
            fresh = [knobs for knobs in self._allowed(rung) if knobs not in tried]
            tried += fresh
            if fresh:
                rungs.append(fresh)
        return rungs

    def least_memory_bytes(self, module: nn.Module, setting: Setting, knobs: Knobs) -> int | None:
        """As the technique says."""
        return self._technique.least_memory_bytes(module, setting, knobs)

    def retry_knobs(self, knobs: Knobs, error: str) -> Knobs | None:
        """What the technique would try next, where that is allowed."""
        again = self._technique.retry_knobs(knobs, error)
        return again if again is not None and self._allowed([again]) == [again] else None

    def changes_after(self, knobs: Knobs, model: ParallelModel) -> Knobs | None:
        """What the technique would change, where that is allowed."""
        changes = self._technique.changes_after(knobs, model)
        if changes is None:
            return None
        changed = {**knobs, **changes}
        return changes if self._allowed([changed]) == [changed] else None

    def changed(self, knobs: Knobs, changes: Knobs) -> Knobs:
        """As the technique says."""
        return self._technique.changed(knobs, changes)

    def parallelise(self, module: nn.Module, gang: Gang, knobs: Knobs) -> ParallelModel:
        """As the technique does."""
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
