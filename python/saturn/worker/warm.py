"""The warm parent: imports torch once, then forks ranks in a hundredth of the time.

Forking is safe only while this process has one thread, no driver of a device, and has never
computed. So it imports, checks that no import broke these rules, and from then on only forks and
waits (`parent`). It touches no tensor and no GPU.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import sys
import time
from pathlib import Path

from saturn.rank.malloc import return_freed
from saturn.techniques.built_in import BUILT_IN
from saturn.worker.parent import Parent, claim_pipes

#: What ranks import sooner or later. Optimizers import torch's compiler: without the warm parent's
#: import, that costs half a second and 100 MB in each rank.
_ALWAYS = ("torch._dynamo", *(path.partition(":")[0] for path in BUILT_IN.values()))

#: Files that are open in a process with CUDA or ROCm initialised. Counting devices opens neither.
DRIVER_FILES = {"/dev/nvidia-uvm", "/dev/kfd"}


class WarmParent(Parent):
    """A parent whose ranks are forks of this process."""

    def run_rank(self, spec: str, rank: int) -> int:
        """Be a rank, in a fork."""
        from saturn.worker import rank as ranks

        return ranks.run(spec, rank)


def _preload(entries: list[str]) -> None:
    """Import entries: each is `module`, or `module:name` for a name that loads lazily."""
    for entry in entries:
        module_name, _, attribute = entry.partition(":")
        try:
            module = importlib.import_module(module_name)
            if attribute:
                getattr(module, attribute)
        # A user's module may raise anything; the rank that needs it will report the error.
        except BaseException as error:
            sys.stderr.write(f"preload of {entry} failed: {error!r}\n")


def import_for_ranks() -> None:
    """Import what ranks need, whatever their task."""
    _preload(list(_ALWAYS))


def reason_against_forking() -> str | None:
    """What the imports left behind that a fork doesn't survive, in words; None if nothing."""
    threads = len(list(Path("/proc/self/task").iterdir()))
    if threads > 1:
        return f"has {threads} threads after its imports"
    if _holds_gpu():
        return "has a GPU in use after its imports"
    return None


def _holds_gpu() -> bool:
    """Whether an import has initialised a GPU's driver, through torch or without."""
    from saturn.rank.process import accelerator_is_in_use

    if accelerator_is_in_use():
        return True
    # The listing has an open file of its own, which is closed by the time that it is read.
    files = [path for path in Path("/proc/self/fd").iterdir() if path.is_symlink()]
    return any(str(path.readlink()) in DRIVER_FILES for path in files)


def main() -> None:
    """The program: `python -m saturn.worker.warm --workers-lock PATH --preload a,b`."""
    parser = argparse.ArgumentParser(prog="python -m saturn.worker.warm")
    parser.add_argument("--workers-lock", required=True)
    parser.add_argument("--preload", default="")
    arguments = parser.parse_args()
    requests, answers = claim_pipes()
    began = time.monotonic()
    # The imports make a million objects that stay; to walk over them again and again while they are
    # made takes a sixth of the time.
    gc.disable()
    from saturn.worker import rank  # noqa: F401  (everything a rank imports)
    from saturn.worker.lock import hold_workers_lock

    hold_workers_lock(arguments.workers_lock)
    import_for_ranks()
    _preload([entry for entry in arguments.preload.split(",") if entry])
    # Imported objects stay. Without them, garbage collection saves each rank a walk over them
    # (0.15 s each time) and a private copy of their pages.
    gc.collect()
    gc.freeze()
    gc.enable()
    # Ranks would fill the holes of the heap first, and seem to take that much less memory.
    return_freed()
    ready = {
        "ready": True,
        "import_s": time.monotonic() - began,
        "cannot_fork": reason_against_forking(),
    }
    WarmParent(requests, answers).serve(ready)


if __name__ == "__main__":
    main()
