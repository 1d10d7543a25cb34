"""People of one machine, each with a user id, a home and a directory to work in.

Only root can start processes of other users. Python may be in root's own directory, so each person
may read all files (`CAP_DAC_READ_SEARCH`). Who may connect, signal and write is as usual.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agents import agents_with

SATURN = Path(sys.executable).with_name("saturn")
#: No account of this machine has these numbers.
FIRST_UID = 51_001


class Person:
    """A person, and the commands that this person gives."""

    def __init__(self, within: Path, number: int) -> None:
        self.uid = FIRST_UID + number
        self.home = within / f"person-{number}"
        self.home.mkdir(mode=0o700)
        self.mark = f"SATURN_TEST_MARK={self.home}"
        self._own(self.home)

    def write(self, name: str, text: str) -> None:
        """Write a file of this person's."""
        path = self.home / name
        path.write_text(text)
        self._own(path)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Begin a command of `saturn`; its output goes to a file."""
        log = (self.home / "output.log").open("a")
        try:
            return subprocess.Popen(
                self._command(arguments), stdout=log, stderr=log, cwd=self.home, text=True
            )
        finally:
            log.close()

    def saturn(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Give a command of `saturn`, and wait for it."""
        command = self._command(arguments)
        return subprocess.run(command, capture_output=True, cwd=self.home, text=True, timeout=60)

    def told(self) -> str:
        """The output of what was begun."""
        return (self.home / "output.log").read_text()

    def agents(self) -> list[int]:
        """This person's agents."""
        return agents_with(self.mark)

    def steering(self) -> list[int]:
        """The processes with this person's user id that steer a sweep."""
        words = ["pgrep", "-u", str(self.uid), "-f", "saturn.tuning.steer"]
        return [int(pid) for pid in subprocess.run(words, capture_output=True).stdout.split()]

    def pool(self) -> Path:
        """The directory of the newest pool that this person drives."""
        return max((self.home / "saturn" / "pools").iterdir())

    def judged(self, directory: Path) -> list[dict[str, Any]]:
        """What this person is told that stoppers have decided."""
        program = f"from saturn import native; print(native.judged({str(directory)!r}))"
        command = [*self._as_this_person(), sys.executable, "-c", program]
        told = subprocess.run(command, capture_output=True, check=True, text=True)
        found: list[dict[str, Any]] = json.loads(told.stdout)
        return found

    def end(self) -> None:
        """Kill all of this person's processes."""
        for entry in Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and entry.stat().st_uid == self.uid:
                    os.kill(int(entry.name), signal.SIGKILL)
            except (FileNotFoundError, ProcessLookupError):
                continue

    def _own(self, path: Path) -> None:
        os.chown(path, self.uid, self.uid)

    def _command(self, arguments: tuple[str, ...]) -> list[str]:
        return [*self._as_this_person(), str(SATURN), *arguments]

    def _as_this_person(self) -> list[str]:
        """The words before a command that this person gives."""
        may_read = "+dac_read_search"
        user = [f"--reuid={self.uid}", f"--regid={self.uid}", "--clear-groups"]
        rights = [f"--inh-caps={may_read}", f"--ambient-caps={may_read}"]
        own = {"HOME": self.home, "SATURN_HOME": self.home / "saturn"}
        own["SATURN_LOCKS_DIR"] = self.home / "locks"
        variables = [f"{name}={path}" for name, path in own.items()]
        return ["setpriv", *user, *rights, "env", *variables, self.mark]


def until(is_so: Callable[[], bool], what: str, at_most_s: float = 60.0) -> None:
    """Wait until something is so."""
    end = time.monotonic() + at_most_s
    while not is_so():
        assert time.monotonic() < end, f"waited in vain: {what}"
        time.sleep(0.1)
