"""The cold parent: starts each rank as an interpreter of its own.

Each rank then takes seconds to start, because of its imports. So the cold parent serves only where
the warm parent can't: importing the task's modules makes forking unsafe, or kills the process.
"""

from __future__ import annotations

import argparse
import os
import sys

from saturn.worker.lock import hold_workers_lock
from saturn.worker.parent import Parent, claim_pipes


class ColdParent(Parent):
    """A parent whose ranks are programs, not forks."""

    def __init__(self, requests: int, answers: int, workers_lock: str) -> None:
        super().__init__(requests, answers)
        self._workers_lock = workers_lock

    def run_rank(self, spec: str, rank: int) -> int:
        """Replace this process by the rank's program."""
        program = [sys.executable, "-m", "saturn.worker.rank", spec, str(rank)]
        os.execv(sys.executable, [*program, "--workers-lock", self._workers_lock])


def main() -> None:
    """The program: `python -m saturn.worker.cold --workers-lock PATH`."""
    parser = argparse.ArgumentParser(prog="python -m saturn.worker.cold")
    parser.add_argument("--workers-lock", required=True)
    arguments = parser.parse_args()
    requests, answers = claim_pipes()
    hold_workers_lock(arguments.workers_lock)
    ready = {"ready": True, "import_s": 0.0, "cannot_fork": None}
    ColdParent(requests, answers, arguments.workers_lock).serve(ready)


if __name__ == "__main__":
    main()
