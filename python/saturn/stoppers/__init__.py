"""Stoppers hold and end tasks of a run, judging by the tasks' reports (docs/tuning.md).

`saturn.orchestrate(stopper=…)` takes one of these, a function of a `Progress`, or a list of
several.
"""

from saturn.stoppers.halving import ASHA
from saturn.stoppers.progress import Progress
from saturn.stoppers.rules import Median, NaN, Plateau, Target, TimeLimit
from saturn.stoppers.stopper import GO_ON, HOLD, STOP, Ruling, Stopper

__all__ = [
    "ASHA",
    "GO_ON",
    "HOLD",
    "STOP",
    "Median",
    "NaN",
    "Plateau",
    "Progress",
    "Ruling",
    "Stopper",
    "Target",
    "TimeLimit",
]
