"""A run of many tests tells each failure at once, and ends though a test hangs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import told_at_once
from test_warm_parent import wait_until_gone

HERE = Path(__file__).parent
CONFTEST = """
import os
import told_at_once
from told_at_once import pytest_configure

told_at_once.STALLED_S = float(os.environ["STALLED_S"])

def pytest_addoption(parser):
    parser.addoption("--nightly", action="store_true")
"""
# The second test swallows every exception. A timeout can't end it, as it can't end compiled code.
TESTS = """
import subprocess, sys, time

def test_wrong():
    assert 1 + 1 == 3

def test_hangs():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    print(child.pid, file=open("child", "w"))
    while True:
        try:
            time.sleep(600)
        except BaseException:
            pass
"""


@pytest.mark.slow(quick=["side by side"])
@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["alone", "side by side"])
def test_what_hangs_is_named_with_its_stack_and_ended_with_all_that_it_started(
    tmp_path: Path, workers: list[str]
) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_it.py").write_text(TESTS)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--timeout=2", "-p", "no:cacheprovider", *workers],
        cwd=tmp_path,
        env={"PYTHONPATH": str(HERE), "PATH": "/usr/bin:/bin", "STALLED_S": "4"},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == told_at_once.EXIT_STALLED, ended.stderr
    assert "The tests stand still. Running are:\n  test_it.py::test_hangs, for" in ended.stderr
    assert 'test_it.py", line 12 in test_hangs' in ended.stderr
    assert "call of test_it.py::test_wrong failed:" in ended.stdout
    assert "assert (1 + 1) == 3" in ended.stdout
    wait_until_gone([int((tmp_path / "child").read_text())])
