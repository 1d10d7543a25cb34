"""Processes that the ranks of runs belong to, if they outlive their drivers."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def agents_with(variable: str) -> list[int]:
    """Agents whose environment has this `NAME=value`."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            is_agent = b"saturn.runs.agent" in (entry / "cmdline").read_bytes()
            if is_agent and variable.encode() in (entry / "environ").read_bytes().split(b"\0"):
                found.append(int(entry.name))
    return found


def end_agents(variable: str) -> None:
    """Kill them, and so their ranks."""
    for pid in agents_with(variable):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
