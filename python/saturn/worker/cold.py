"""The cold parent: gives each rank an interpreter of its own.

That takes seconds a rank, for imports. It is for when no warm parent can serve: forking is not
safe after what a task's modules did when they were imported, or importing them kills the process.
"""

from __future__ import annotations

import argparse
import os
import sys

from saturn.worker.lock import hold_workers_lock
from saturn.worker.parent import Parent, claim_pipes


class ColdParent(Parent):
    """Ranks as programs."""

    def __init__(self, requests: int, answers: int, workers_lock: str) -> None:
        super().__init__(requests, answers)
        self._workers_lock = workers_lock

    def live(self, spec: str, rank: int) -> int:
        """Become the program."""
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
