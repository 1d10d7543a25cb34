"""The machine that `make gpu-check` checks, and gangs on its GPUs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from harness import Runtime, runtime
from saturn.techniques import BUILT_IN
from warm_parent import Warm

MB = 1_000_000
#: What gloo can't do with memory of a GPU: send from one rank to one other.
NOT_OVER_GLOO = ("pipeline",)
#: What is not tried over gloo until it has been looked at on a GPU, and why.
REFUSED_OVER_GLOO = {
    "tensor": "two ranks that shared an H200 over gloo ended by a segmentation fault in a gather "
    "of a split tensor (torch 2.11, docs/bench/gpu.md); nobody has looked into it yet"
}
#: Most ranks of a gang whose ranks share a GPU.
MOST_SHARING = 4
PRELOAD = ("transformers:GPT2LMHeadModel", "transformers:LlamaForCausalLM")


@dataclass(frozen=True)
class Machine:
    """The GPUs that are checked."""

    uuids: tuple[str, ...]
    names: tuple[str, ...]
    out: Path
    small: bool
    techniques: tuple[str, ...] = tuple(BUILT_IN)

    @property
    def shares(self) -> bool:
        """Whether several ranks are to be on one GPU."""
        return len(self.uuids) == 1

    def reason_against(self, technique: str) -> str | None:
        """Why a technique is not checked with several ranks here; None if it is."""
        if not self.shares:
            return None
        found = (why for part, why in REFUSED_OVER_GLOO.items() if part in technique.split("+"))
        return next(found, None)

    def widths(self, technique: str) -> list[int]:
        """The numbers of ranks that a technique is checked with."""
        is_left_out = self.shares and technique.startswith(NOT_OVER_GLOO)
        if is_left_out or self.reason_against(technique) is not None:
            return [1]
        most = MOST_SHARING if self.shares else len(self.uuids)
        return [ranks for ranks in (1, 2, 4, 8) if ranks <= most]


@contextmanager
def ranks_on(machine: Machine, *, over_gloo: bool | None = None) -> Iterator[Runtime]:
    """A run directory whose gangs are on the machine's GPUs; over gloo if they share one."""
    is_over_gloo = machine.shares if over_gloo is None else over_gloo
    preload = [*(["over_gloo"] if is_over_gloo else []), *PRELOAD]
    with tempfile.TemporaryDirectory(prefix="saturn-gpu-check-") as directory:
        root = Path(directory)
        os.environ.setdefault("SATURN_LOCKS_DIR", str(root / "locks"))
        environment = {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
        warm = Warm(root / "lock", ",".join(preload), environment, machine.uuids)
        try:
            with runtime(root, warm) as run:
                yield run
        finally:
            warm.close()
