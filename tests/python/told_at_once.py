"""What a run of many tests says before its end: each failure, and what keeps it from ending.

Hooks of pytest, which `conftest.py` takes over. Where the gate is stopped from outside, its log
ends with dots; so a failure is printed when it is known, and not only at the end. A test that hangs
where its timeout can't reach it (it is in compiled code; it waits for a run to stop that does not)
would keep the gate for ever: once a test has run for `STALLED_S`, what is running is told, the
stacks of all processes of pytest's are printed, and all that the run has started is killed.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import threading
import time
from pathlib import Path
from typing import TextIO

import psutil
import pytest

#: Longer than any quick test may take (`timeout` in pyproject.toml and in the files).
STALLED_S = 750.0
#: With `--nightly`, whose longest tests have timeouts of their own.
STALLED_NIGHTLY_S = 2.0 * 3600
#: What dumps the stacks of a process of pytest's; nothing of Saturn's listens to it.
DUMP = signal.SIGUSR2
#: A run that was ended because it stood still; pytest's own codes end at 5.
EXIT_STALLED = 6


class Progress:
    """The tests that run, of the process that the user started: xdist's workers report to it."""

    def __init__(self, terminal: pytest.TerminalReporter, stderr: TextIO, stalled_s: float) -> None:
        self.terminal = terminal
        self.stderr = stderr
        self.stalled_s = stalled_s
        self.running: dict[str, float] = {}  # by the test's id, since when
        self.changed = time.monotonic()
        self.is_over = threading.Event()
        threading.Thread(target=self._watch, daemon=True).start()

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.changed = self.running[nodeid] = time.monotonic()

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self.changed = time.monotonic()
        self.running.pop(nodeid, None)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.changed = time.monotonic()
        if report.when not in ("setup", "call"):  # over, or lost with its worker
            self.running.pop(report.nodeid, None)
        if report.failed:
            self.terminal.write_line("")
            self.terminal.write_line(f"{report.when} of {report.nodeid} failed:", red=True)
            self.terminal.write_line(report.longreprtext)

    def pytest_unconfigure(self) -> None:
        self.is_over.set()

    def _watch(self) -> None:
        while not self.is_over.wait(self.stalled_s / 20):
            now = time.monotonic()
            running = dict(self.running)
            if now - min(running.values(), default=self.changed) > self.stalled_s:
                lines = [f"  {test}, for {now - at:.0f} s" for test, at in running.items()]
                print("\nThe tests stand still. Running are:", file=self.stderr)
                print(*(lines or ["  none"]), sep="\n", file=self.stderr, flush=True)
                end_all(self.stderr)


def end_all(stderr: TextIO) -> None:
    """Prints the stacks of this process and of xdist's workers, kills all and exits."""
    workers = psutil.Process().children()
    for worker in workers:
        if handles_dump(worker.pid):
            worker.send_signal(DUMP)
            time.sleep(1)  # as long as its stacks take: others' would come in between
    faulthandler.dump_traceback(stderr, all_threads=True)
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    os._exit(EXIT_STALLED)


def handles_dump(pid: int) -> bool:
    """Whether a process has a handler for the signal, which would end it otherwise."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return False
    caught = next(line.split()[1] for line in lines if line.startswith("SigCgt:"))
    return bool(int(caught, 16) >> (DUMP - 1) & 1)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    # The terminal's, which pytest takes from a test.
    stderr = os.fdopen(os.dup(2), "w")
    faulthandler.register(DUMP, file=stderr)
    if hasattr(config, "workerinput"):
        return
    terminal = config.pluginmanager.get_plugin("terminalreporter")
    assert terminal is not None
    stalled_s = STALLED_NIGHTLY_S if config.option.nightly else STALLED_S
    config.pluginmanager.register(Progress(terminal, stderr, stalled_s))
