"""The techniques that come with Saturn, and the interface for writing one.

Importing this package does not import torch; each technique lives in a file or package of its own,
named by import path in `BUILT_IN`, and is imported in the worker. None uses another: what they
share is in `data_parallel`, `memory_bounds` and `model`.
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
