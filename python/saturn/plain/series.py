"""The names of curves, equal in TensorBoard and in every tracker.

Only this module turns a line of `metrics.jsonl` into values by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saturn.plain.measures import number

#: The number of devices of the task, which shows its moves.
DEVICES = "saturn/devices"
#: The curve that every step has.
LOSS = "train/loss"

#: Fields of a step's line, and the names of their curves.
_OF_STEP = {
    "loss": LOSS,
    "lr": "train/lr",
    "gradient_norm": "train/gradient_norm",
    "samples_per_s": "speed/samples_per_s",
    "tokens_per_s": "speed/tokens_per_s",
    "memory_bytes": "memory/bytes",
}


def values_of(line: Mapping[str, Any]) -> dict[str, float]:
    """The values of a line by their curves' names; values that it lacks are left out."""
    evaluation = line.get("evaluation")
    if isinstance(evaluation, Mapping):
        named = {f"eval/{name.removeprefix('eval_')}": value for name, value in evaluation.items()}
    else:
        named = {curve: line.get(field) for field, curve in _OF_STEP.items()}
    numbers = {name: number(value) for name, value in named.items()}
    return {name: value for name, value in numbers.items() if value is not None}
