"""Watches a task's steps for whatever makes their host wait for a device.

`watched` is a task's `lr_scheduler`, so every rank calls it after each step of the optimizer.
Between two steps of the task it has torch refuse what synchronises, and notes calls that wait and
that torch lets pass. A rank prints what it has noted.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import torch
from saturn.rank import gang
from torch.autograd.graph import GradientEdge
from torch.optim.lr_scheduler import LambdaLR

#: Steps after which the watching begins, and ends: the first ones warm up, and check tensor plans.
FIRST, LAST = 4, 9
MARK = "waited-in: "
#: Waits for peers, that Saturn makes on the host.
_OF_GANG = ("sum", "collect", "exchange")
#: Files whose callers say more than they do.
_TORCH, _THIS = Path(torch.__file__).parent, Path(__file__)


def watched(optimizer: torch.optim.Optimizer) -> LambdaLR:
    watch = _Watch()
    return LambdaLR(optimizer, lambda done: watch.stepped(done))  # a function has no state


class _Watch:
    def __init__(self) -> None:
        self._waits: set[str] = set()
        self._backward = torch.autograd.backward

    def stepped(self, done: int) -> float:
        if done == FIRST:
            torch.cuda.set_sync_debug_mode("error")
            sys.setprofile(self._see)
            torch.autograd.backward = self._seen_backward
        if done == LAST:
            torch.autograd.backward = self._backward
            sys.setprofile(None)
            torch.cuda.set_sync_debug_mode("default")
            print(MARK + json.dumps(sorted(self._waits)), flush=True)
        return 1.0

    def _seen_backward(self, tensors: Any, *args: Any, **options: Any) -> None:
        """A backward runs in a thread of its own, which is watched from its beginning."""
        for end in [tensors] if isinstance(tensors, torch.Tensor) else tensors:
            node = end.node if isinstance(end, GradientEdge) else end.grad_fn
            node.register_prehook(lambda *gradients: sys.setprofile(self._see))
        self._backward(tensors, *args, **options)

    def _see(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "c_call" and "synchronize" in argument.__name__:
            self._waits.add(_caller(frame))
        is_of_gang = event == "call" and frame.f_code.co_name in _OF_GANG
        if is_of_gang and frame.f_back and frame.f_code.co_filename == gang.__file__:
            self._waits.add(_caller(frame.f_back))


def _caller(frame: FrameType) -> str:
    """`file.py:function` of the first frame that isn't torch's; of torch's, where there is none."""
    own: FrameType | None = frame
    while own is not None and _TORCH in Path(own.f_code.co_filename).parents:
        own = own.f_back
    found = own or frame.f_back or frame  # torch's wrapper says nothing
    return f"{Path(found.f_code.co_filename).name}:{found.f_code.co_name}"


def waits_in(logs: str) -> list[list[str]]:
    """What each rank has noted."""
    lines = [line for line in logs.splitlines() if line.startswith(MARK)]
    return [json.loads(line.removeprefix(MARK)) for line in lines]
