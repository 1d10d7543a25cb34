"""The techniques that come with Saturn, and the interface for writing a technique.

Importing this package does not import torch. Each technique has a file or package of its own, which
`BUILT_IN` names by import path and a worker imports. No technique uses another: what they share is
in `data_parallel`, `memory_bounds` and `model`.
"""

from __future__ import annotations

from saturn.techniques.built_in import BUILT_IN
from saturn.techniques.interface import (
    Knobs,
    NotApplicable,
    Objective,
    ParallelModel,
    Setting,
    Technique,
)

__all__ = [
    "BUILT_IN",
    "Knobs",
    "NotApplicable",
    "Objective",
    "ParallelModel",
    "Setting",
    "Technique",
]
