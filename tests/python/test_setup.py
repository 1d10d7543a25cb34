"""The set-up says first what is missing, and how to get it."""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "scripts"))

import with_torch  # noqa: E402

SETUP = ROOT / "scripts" / "setup.py"


def with_tools(directory: Path, **scripts: str) -> subprocess.CompletedProcess[str]:
    """Run the set-up where nothing is installed but these programs."""
    for name, script in scripts.items():
        tool = directory / name.replace("_", "+")
        tool.write_text(f"#!/bin/sh\n{script}\n")
        tool.chmod(0o755)
    return subprocess.run(
        [sys.executable, SETUP, "--run", "true"],
        env={"PATH": str(directory)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        ({}, "missing: Rust; get it from https://rustup.rs"),
        ({"cargo": "exit 1"}, "missing: Rust; get it from https://rustup.rs"),
        ({"cargo": "echo cargo 1.70.0"}, "missing: Rust 1.91 or later (this is 1.70); get it with"),
        ({"cargo": "echo cargo 1.95.0"}, "missing: a C++ compiler; get it with: apt install g++"),
    ],
)
def test_the_first_line_says_what_is_missing(
    tmp_path: Path, tools: dict[str, str], message: str
) -> None:
    done = with_tools(tmp_path, **tools)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith(message)


def test_an_old_python_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    # It must get as far as saying so: the file has to be readable by such a Python.
    ast.parse(SETUP.read_text(), feature_version=(3, 7))
    spec = importlib.util.spec_from_file_location("setup_script", SETUP)
    assert spec is not None and spec.loader is not None
    setup = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(setup)
    monkeypatch.setattr(sys, "version_info", (3, 8, 1))
    assert setup.missing_prerequisite().startswith("missing: Python 3.10 or later")


def test_make_says_so_where_there_is_no_python_at_all() -> None:
    # The tests themselves run under make, which would make it talk of directories.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "setup", "PYTHON=no-such-python"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert done.stdout.startswith("missing: Python 3.10 or later; get it from")


def test_another_torch_gets_an_environment_before_its_pip_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    python = tmp_path / ".venv-torch-2.11.0" / "bin" / "python"
    called: list[list[str]] = []

    def call(command: list[str | Path], cwd: Path | None = None) -> int:
        called.append([str(word) for word in command])
        if "venv" in command:
            python.parent.mkdir(parents=True)
            python.symlink_to(sys.executable)
            (python.parents[1] / "lib" / "python3.11" / "site-packages").mkdir(parents=True)
        return 0

    built = tmp_path / "saturn"
    built.write_text("a program")
    monkeypatch.setattr(with_torch, "BIN", tmp_path)
    monkeypatch.setattr(with_torch, "ROOT", tmp_path)
    monkeypatch.setattr(with_torch.subprocess, "call", call)
    monkeypatch.setattr(sys, "argv", ["with_torch.py", "2.11.0", "-m", "pytest"])
    for _ in range(2):
        assert with_torch.main() == 0
    made, installed, *runs = called
    assert made[1:4] == ["-m", "venv", "--clear"]
    assert "torch==2.11.0" in installed and str(python) in " ".join(installed)
    # The second call finds all of it ready.
    assert runs == [[str(python), "-m", "pytest"]] * 2
    assert python.with_name("saturn").read_text() == "a program"
