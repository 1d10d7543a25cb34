"""Tries mutants that come line by line, each in a fork that has imported torch already.

    python scripts/mutant_runner.py < jobs

Runs in a private copy of a checkout, with the copy's environment. A job has `path` and `code` (the
mutated file), `tests` (their ids, in the order in which they run) and `limit_s`. The answer says
whether the mutant was killed, by which test, and after how many seconds. The file is restored, and
what the tests left running is ended, before the answer is written.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import itertools
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: Of Linux's prctl.h.
PR_SET_CHILD_SUBREAPER = 36
#: Imported before each fork: what takes most of a test session's start, and is never mutated.
PRELOADED = (
    *("torch", "torch.distributed.tensor", "torch.distributed.fsdp", "torch.nn.parallel"),
    *("torch.distributed.checkpoint", "torch.distributed.pipelining", "torch.utils.data"),
)
LOOK_AGAIN_S = 0.02
#: Python compares a file's time in whole seconds with that of its compiled form.
_times = itertools.count(1_000_000_000, 10)


class Chosen:
    """A plugin of pytest: runs these tests in this order, and writes down the first that fails."""

    def __init__(self, tests: list[str], failed: Path) -> None:
        self._places = {test: place for place, test in enumerate(tests)}
        self._failed = failed

    @pytest.hookimpl(wrapper=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Iterator[None]:
        yield
        items[:] = sorted(
            (item for item in items if item.nodeid in self._places),
            key=lambda item: self._places[item.nodeid],
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed and not self._failed.exists():
            self._failed.write_text(report.nodeid)


def main() -> None:
    """Answer each job."""
    adopt_orphans()
    for name in PRELOADED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    for line in sys.stdin:
        answers.write(json.dumps(tried(json.loads(line))) + "\n")
        answers.flush()


def tried(job: dict[str, Any]) -> dict[str, Any]:
    """Try one mutant."""
    path = Path(job["path"])
    original = path.read_text()
    began = time.monotonic()
    try:
        put(path, job["code"])
        code, by = outcome(job["tests"], job["limit_s"])
    finally:
        put(path, original)
        end_all()
    # 5: no test was left to run, which would make a survivor of any mutant.
    assert code != 5, f"no tests of {job['tests'][:3]}"
    return {"killed": code != 0, "by": by if code else "", "s": round(time.monotonic() - began, 2)}


def put(path: Path, code: str) -> None:
    """Write a file so that its compiled form is seen to be old."""
    path.write_text(code)
    when = next(_times)
    os.utime(path, (when, when))


def outcome(tests: list[str], limit_s: float) -> tuple[int, str]:
    """(pytest's exit code, the first test that failed) of a session in a fork."""
    work = Path.cwd() / "mutant"
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    failed = work / "failed"
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.setsid()
            output = os.open(work / "output", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            for number in (1, 2):
                os.dup2(output, number)
            files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
            options = ["-q", "-x", "-p", "no:cacheprovider", f"--basetemp={work / 't'}"]
            code = int(pytest.main([*options, *files], plugins=[Chosen(tests, failed)]))
        finally:
            os._exit(code)
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            by = failed.read_text() if failed.exists() else ""
            return os.waitstatus_to_exitcode(status), by or "pytest"
        time.sleep(LOOK_AGAIN_S)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return -signal.SIGKILL, "time"


def adopt_orphans() -> None:
    """Become the parent of what descendants leave running, so that `end_all` finds it."""
    assert ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0


def end_all() -> None:
    """End all children; their own become children then, so it is done until there are none."""
    while pids := children():
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in pids:
            with contextlib.suppress(ChildProcessError):
                os.waitpid(pid, 0)


def children() -> list[int]:
    """The processes whose parent is this one."""
    return [int(pid) for pid in Path("/proc/thread-self/children").read_text().split()]


if __name__ == "__main__":
    main()
