"""Fail each operation on files of a save once, in turn, and see what can be loaded afterwards.

    python durability_walk.py DIRECTORY SCENARIO (error|death) [VARIANT]

A program of its own, because it forks, which a process with threads must not. A scenario does
something to a directory that holds something already. For every operation of it (see
`file_faults`) a fresh process does it and this operation fails with EIO or ENOSPC, or is where
the process dies. Then what is there is judged, and so is what a power cut at the end would have
left; and whoever comes next must be able to go on. Prints a line of JSON for each, with what is
`wrong`, or null. A variant makes saving wrong in a known way, and ends at the first that is.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from durability_scenarios import SCENARIOS
from file_faults import Disk, Operations
from saturn.checkpoint import manifest
from saturn.plain import durable
from saturn.rank.failure import describe

#: In turn, each with the kind of failure that it is.
ERRORS = ((errno.EIO, "error"), (errno.ENOSPC, "no_space"))
#: Exit codes of the process that does it: it said that it did, or that it failed (for the right
#: reason, or another), or it died; or the operation that was to fail never came.
DID, FAILED, WRONG_KIND, NEVER_CAME, DIED = 0, 3, 4, 5, 9


def unsynced(path: Path) -> None:
    """Names are not made durable."""


def replacing(scratch: Path, checkpoints_dir: Path, content: Any) -> Path:
    """Commits as if a step were never saved twice: two renames."""
    target = checkpoints_dir / manifest.step_dir_name(content["step"])
    if target.exists():
        target.rename(checkpoints_dir / f".old-{time.monotonic_ns()}")
    with (scratch / manifest.NAME).open("w") as file:
        json.dump(content, file)
    durable.sync_all([scratch / manifest.NAME, scratch])
    scratch.rename(target)
    durable.sync(checkpoints_dir)
    return target


def strict_prune(checkpoints_dir: Path, prune: Callable[[Path], None] = manifest.prune) -> None:
    """Says of what it can't remove that the save failed."""
    for _, directory in manifest.found(checkpoints_dir)[manifest.KEPT :]:
        directory.rename(checkpoints_dir / f".old-{directory.name}")
    prune(checkpoints_dir)


def make_wrong(variant: str) -> None:
    """Make saving wrong in a known way."""
    if variant == "unsynced":
        durable.sync = unsynced
    elif variant == "replacing":
        manifest.commit = replacing
    elif variant == "strict-prune":
        manifest.prune = strict_prune
    else:
        raise ValueError(f"no variant `{variant}`")


class Walk:
    """A scenario, done again and again, each time in a copy of where it begins."""

    def __init__(self, directory: Path, scenario: str) -> None:
        self._directory = directory
        self._class = SCENARIOS[scenario]
        self._start = directory / "start"
        self._place = directory / "place"
        self._left = directory / "what a power cut leaves"
        #: Whether the operation came that was last to be failed.
        self.has_come = True
        self._start.mkdir()
        self._in_a_process(lambda: self._class(self._start).prepare())

    def num_operations(self) -> int:
        """How many operations it does undisturbed."""
        told = self._directory / "operations"
        self._do(0, "nothing", told)
        return len(told.read_text().split())

    def judge(self, number: int, fault: str) -> str | None:
        """Do it, with a fault at one operation; what is wrong then."""
        code = self._do(number, fault)
        self.has_come = code != NEVER_CAME
        if not self.has_come:
            code, fault = DID, "nothing"
        if fault == "nothing" and code != DID:
            return f"it ended with code {code} where nothing was wrong"
        if fault == "death" and code != DIED:
            return f"it ended with code {code}, and should have died"
        if code not in (DID, FAILED, DIED):
            return f"it ended with code {code}: see standard error"
        # What was said to be done is there, and lasts. What was said to have failed may be there,
        # but doesn't last: else it was done. What died is there or is not.
        right_of = {
            self._place: {2} if code == DID else {1, 2},
            self._left: {DID: {2}, FAILED: {1}, DIED: {1, 2}}[code],
        }
        told = self._directory / "told"

        def find() -> None:
            told.write_text("null")
            for directory, right in right_of.items():
                scenario = self._class(directory)
                found = scenario.found()
                if found in right:
                    scenario.do_again()
                    found_next = scenario.found()
                    wrong = None if found_next == 3 else f"{found_next!r} after what comes next"
                else:
                    wrong = f"{found!r}, and should be one of {right}"
                if wrong is not None:
                    told.write_text(json.dumps(f"in `{directory.name}` there is {wrong}"))
                    return

        if self._in_a_process(find) != DID:
            return "what comes next can't go on: see standard error"
        return json.loads(told.read_text())

    def _do(self, number: int, fault: str, told: Path | None = None) -> int:
        for path in (self._place, self._left):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(self._start, self._place)

        def do() -> None:
            scenario = self._class(self._place)
            scenario.open()
            disk = Disk(self._place)

            number_of_error, kind = ERRORS[number % len(ERRORS)]

            def strike() -> None:
                if fault == "error":
                    raise OSError(number_of_error, os.strerror(number_of_error))
                if fault == "death":
                    disk.write_what_is_left(self._left)
                    os._exit(DIED)

            operations = Operations(number, strike, disk)
            code = DID
            try:
                scenario.do()
            except Exception as error:
                code = FAILED if describe(error).kind == kind else WRONG_KIND
                traceback.print_exc()
            if operations.done < number:
                code = NEVER_CAME
            disk.write_what_is_left(self._left)
            if told is not None:
                told.write_text(" ".join(operations.names))
            os._exit(code)

        return self._in_a_process(do)

    def _in_a_process(self, work: Callable[[], None]) -> int:
        if (pid := os.fork()) == 0:
            code = 1
            try:
                work()
                code = DID
            except BaseException:
                traceback.print_exc()
            finally:
                sys.stderr.flush()
                os._exit(code)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def main() -> None:
    """The program."""
    directory, scenario, fault, *variants = sys.argv[1:]
    for variant in variants:
        make_wrong(variant)
    walk = Walk(Path(directory), scenario)
    total = walk.num_operations()
    print(json.dumps({"operations": total}), flush=True)
    number = 0
    # There may be more operations than the first time, and fewer.
    while number <= total or walk.has_come:
        # First, nothing at all.
        wrong = walk.judge(number, fault if number else "nothing")
        print(json.dumps({"at": number, "wrong": wrong}), flush=True)
        if variants and wrong is not None:
            return
        number += 1


if __name__ == "__main__":
    main()
