"""What curves are called, in TensorBoard and in every tracker alike.

A line of `metrics.jsonl` becomes values by name here, and nowhere else.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from saturn.plain.measures import number

#: How many devices the task has: its moves show.
DEVICES = "saturn/devices"
#: The curve that every step has.
LOSS = "train/loss"

#: What a step's line may say, and what the curve of it is called.
_OF_STEP = {
    "loss": LOSS,
    "lr": "train/lr",
    "gradient_norm": "train/gradient_norm",
    "samples_per_s": "speed/samples_per_s",
    "tokens_per_s": "speed/tokens_per_s",
    "memory_bytes": "memory/bytes",
}


def values_of(line: Mapping[str, Any]) -> dict[str, float]:
    """The values of a line by their curves' names; what it does not say is left out."""
    evaluation = line.get("evaluation")
    if isinstance(evaluation, Mapping):
        named = {f"eval/{name.removeprefix('eval_')}": value for name, value in evaluation.items()}
    else:
        named = {curve: line.get(field) for field, curve in _OF_STEP.items()}
    numbers = {name: number(value) for name, value in named.items()}
    return {name: value for name, value in numbers.items() if value is not None}
