"""The README's own commands do what it says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from harness import PYTHON_DIR

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run(command: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(PYTHON_DIR)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=200, check=False
    )


@pytest.mark.timeout(240)
def test_the_sweep_trains(tmp_path: Path) -> None:
    (sweep,) = [block for block in blocks("python") if "orchestrate(" in block]
    (tmp_path / "sweep.py").write_text(sweep)
    done = run([sys.executable, "sweep.py"], tmp_path)
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_file()
    assert "4 of 4 tasks done" in done.stderr


def test_the_black_box_technique_registers(tmp_path: Path) -> None:
    (technique,) = [block for block in blocks("python") if "register(" in block]
    (tmp_path / "technique.py").write_text(technique)
    done = run([sys.executable, "technique.py"], tmp_path)
    assert done.returncode == 0, done.stderr


def test_its_commands_exist() -> None:
    commands = [
        line.partition("#")[0].split()
        for block in blocks("sh")
        for line in block.splitlines()
        if line.strip()
    ]
    assert ["make", "demo"] in commands and ["make", "test"] in commands
    for command in commands:
        if command[0] == "make":
            done = run(["make", "--dry-run", command[1]], ROOT)
        elif command[:2] == ["saturn", "plan"]:
            done = run([*command, "--time-limit", "1"], ROOT)
        else:
            # The run that it names is the reader's; what pip installs is in test_install.py.
            if command[:2] == ["pip", "install"]:
                continue
            assert command[0] == "saturn"
            done = run([*command[:2], "--help"], ROOT)
        assert done.returncode == 0, (command, done.stderr)


def test_what_it_links_to_is_there() -> None:
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", README):
        assert (ROOT / target).exists(), target
