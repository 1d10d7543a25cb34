"""Managed techniques for the tests: each behaves in one particular way."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import Any

import torch
from saturn.techniques import Knobs, NotApplicable, ParallelModel, Setting, Technique
from saturn.techniques.ddp import Ddp


def spec_of(technique: type[Any], level: str = "managed") -> dict[str, Any]:
    """What a spec says of a technique that is importable."""
    return {
        "name": technique.__name__.lower(),
        "level": level,
        "import": f"{technique.__module__}:{technique.__qualname__}",
        "pickle": None,
    }


class ManyKnobs(Ddp):
    """Sleeps in each forward as its knob says; some knobs fail, on one rank or on all.

    They sleep for so long that a busy machine does not change which is the fastest.
    """

    thriftier: Sequence[Sequence[Knobs]] = []

    def knob_sets(self, module: torch.nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [
            {"sleep_s": 0.2},
            {"fail": "one rank"},
            {"fail": "memory of one rank"},
            {"sleep_s": 0.0},
            {"fail": "all ranks"},
            {"sleep_s": 0.15},
        ]

    def thriftier_knob_sets(
        self, module: torch.nn.Module, setting: Setting
    ) -> Sequence[Sequence[Knobs]]:
        return self.thriftier

    def parallelise(self, module: torch.nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        import time

        def before(*_: Any) -> None:
            time.sleep(knobs.get("sleep_s", 0.0))
            if knobs.get("fail") == "all ranks":
                raise RuntimeError("this knob never works")
            if knobs.get("fail") == "one rank" and gang.rank == 1:
                raise RuntimeError("this knob fails on rank 1")
            if knobs.get("fail") == "memory of one rank" and gang.rank == 0:
                raise torch.OutOfMemoryError("no room")
            if knobs.get("fail") == "host memory of one rank" and gang.rank == 0:
                raise MemoryError("no room on the host")

        module.register_forward_pre_hook(before)
        return super().parallelise(module, gang, knobs)


class SlowThenFast(ManyKnobs):
    """The first set takes its time, and loses."""

    def knob_sets(self, module: torch.nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{"sleep_s": 1.0}, {"sleep_s": 0.0}]


class FastThenSlow(ManyKnobs):
    """The first set wins."""

    def knob_sets(self, module: torch.nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{"sleep_s": 0.0}, {"sleep_s": 0.5}]


class OnlyBadKnobs(ManyKnobs):
    """Nothing works; the first failure is what is told."""

    def knob_sets(self, module: torch.nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{"fail": "memory of one rank"}, {"fail": "one rank"}]


class NoHostMemory(ManyKnobs):
    """The machine's own memory runs out."""

    def knob_sets(self, module: torch.nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{"fail": "host memory of one rank"}]


class HostMemoryAtFirst(ManyKnobs):
    """The machine's own memory runs out with the first knobs only."""

    def knob_sets(self, module: torch.nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{"fail": "host memory of one rank"}, {"sleep_s": 0.0}]


class NothingFits(ManyKnobs):
    """Memory runs out with the first knobs, and with thriftier ones."""

    def thriftier_knob_sets(
        self, module: torch.nn.Module, setting: Setting
    ) -> Sequence[Sequence[Knobs]]:
        return [[{"fail": "memory of one rank", "sleep_s": 0.001}], [{"fail": "one rank"}]]

    def knob_sets(self, module: torch.nn.Module, setting: Setting) -> Sequence[Knobs]:
        return [{"fail": "memory of one rank"}]


class FindsOutLate(Ddp):
    """Sees only while parallelising that it can't."""

    def parallelise(self, module: torch.nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        raise NotApplicable("the layers are of unequal width")


class DiesInForward(Ddp):
    """Rank 1 is killed in the middle of a step."""

    def parallelise(self, module: torch.nn.Module, gang: Any, knobs: Knobs) -> ParallelModel:
        def before(*_: Any) -> None:
            if gang.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)

        module.register_forward_pre_hook(before)
        return super().parallelise(module, gang, knobs)


class NotATechnique:
    """No subclass of anything."""


class Minimal(Technique):
    """Lacks the one method that must be there."""


class FitsOnTheSecondRung(ManyKnobs):
    """Short of memory at first."""

    first: Sequence[Knobs] = [{"fail": "memory of one rank"}, {"fail": "all ranks"}]
    thriftier: Sequence[Sequence[Knobs]] = [
        [{"sleep_s": 0.2}, {"sleep_s": 0.01}],
        [{"sleep_s": 0.0}],
    ]

    def knob_sets(self, module: torch.nn.Module, setting: Setting) -> Sequence[Knobs]:
        return self.first


class FitsAtOnce(FitsOnTheSecondRung):
    """Short of memory for one of its sets only."""

    first: Sequence[Knobs] = [{"fail": "memory of one rank"}, {"sleep_s": 0.02}]


class FailsOnTheFirstRung(FitsOnTheSecondRung):
    """Fails for a reason that no memory helps."""

    first: Sequence[Knobs] = [{"fail": "all ranks"}]


class FitsNowhere(FitsOnTheSecondRung):
    """Short of memory throughout."""

    thriftier: Sequence[Sequence[Knobs]] = [[{"fail": "memory of one rank", "thrifty": True}]]
