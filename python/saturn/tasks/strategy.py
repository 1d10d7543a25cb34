"""A strategy as `search` found it: a technique, a number of devices, knobs, and the outcome.

It is plain data. A black box's parameters may be any plain value; `wrap_parameters` makes knobs of
them, and `unwrap_parameters` restores them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

#: The only key in a black box's knobs if its parameters are not a mapping of their own.
_WRAPPED = "parameters"


@dataclass(frozen=True, kw_only=True)
class Strategy:
    """One way to run a task, either measured or refused."""

    technique: str
    gpus: int
    knobs: Mapping[str, Any] = field(default_factory=dict)
    #: `measured`, `not_applicable`, `out_of_memory` or `failed`.
    status: str = "measured"
    #: Why it can't run, in words; None if it can.
    reason: str | None = None
    #: Seconds a step: the median of the timed steps.
    step_s: float | None = None
    #: Seconds from launch to the first step.
    setup_s: float | None = None
    #: The largest memory of any rank.
    peak_memory_bytes: int | None = None
    #: How much a device was allowed to hold in the trial; None without a limit.
    device_memory_bytes: int | None = None
    #: The whole outcome of the trial, in the form of `profile.json`.
    outcome: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def parameters(self) -> Any:
        """The return value of a black box's own `search`; for other techniques the knobs."""
        return unwrap_parameters(self.knobs)


def wrap_parameters(parameters: Any) -> dict[str, Any]:
    """A black box's parameters as knobs, which must be a mapping with string keys."""
    plain = isinstance(parameters, dict) and all(isinstance(key, str) for key in parameters)
    if plain and set(parameters) != {_WRAPPED}:
        return dict(parameters)
    return {} if parameters is None else {_WRAPPED: parameters}


def unwrap_parameters(knobs: Mapping[str, Any]) -> Any:
    """Undo `wrap_parameters` (None comes back as an empty mapping)."""
    return knobs[_WRAPPED] if set(knobs) == {_WRAPPED} else dict(knobs)
