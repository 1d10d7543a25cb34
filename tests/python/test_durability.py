"""Each operation on files fails once while a checkpoint or a task is written, or is the last one.

What was said to be saved is found afterwards, also after a power cut; nothing half-written ever is;
and work goes on. `durability_walk` walks through the operations; here is only what is walked, and
that it would notice if saving were wrong.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from saturn.checkpoint import writer
from warm_parent import worker_env

PROGRAM = Path(__file__).with_name("durability_walk.py")
#: Where files in memory are, if anywhere: what would last is reckoned, and real syncs only take
#: time.
IN_MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None


def walk(*arguments: str) -> tuple[int, list[dict[str, Any]]]:
    """How many operations there are, and what is wrong after a fault at which of them."""
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as directory:
        ended = subprocess.run(
            [sys.executable, PROGRAM, directory, *arguments],
            env=worker_env(),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert ended.returncode == 0, ended.stderr[-4000:]
    first, *each = map(json.loads, ended.stdout.splitlines())
    wrong = [fault for fault in each if fault["wrong"] is not None]
    assert wrong or len(each) > first["operations"]
    return first["operations"], [*wrong, {"stderr": ended.stderr[-4000:]}] if wrong else []


@pytest.mark.slow(quick=["death-managed-20"])
@pytest.mark.parametrize(
    ("scenario", "least"),
    [("managed", 20), ("background", 20), ("first", 20), ("black-box", 12), ("tasks", 20)],
)
@pytest.mark.parametrize("fault", ["error", "death"])
def test_every_operation_may_fail_or_be_the_last(scenario: str, least: int, fault: str) -> None:
    num_operations, wrong = walk(scenario, fault)
    assert wrong == []
    assert num_operations >= least


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("first death unsynced", "in `what a power cut leaves` there is 1"),
        ("tasks death unsynced", "in `what a power cut leaves` there is 1"),
        ("black-box death replacing", "in `place` there is None"),
        ("managed error strict-prune", "in `what a power cut leaves` there is 2"),
    ],
)
def test_what_is_known_to_be_wrong_is_found_out(arguments: str, words: str) -> None:
    _, wrong = walk(*arguments.split())
    assert wrong and words in wrong[0]["wrong"], wrong


def test_an_early_sync_that_fails_fails_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The kernel tells of a lost write once: the last sync would hear nothing.
    def lost(descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(writer, "_SYNC_EVERY_BYTES", 10)
    monkeypatch.setattr(os, "fdatasync", lost)
    with (tmp_path / "file").open("wb") as file:
        digested = writer._Digested(file, syncs=True)
        digested.write(b"more than ten bytes")
        digested.flush()
        with pytest.raises(OSError, match="Input/output error"):
            digested.close()
