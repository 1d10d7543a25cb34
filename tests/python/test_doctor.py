"""`saturn doctor`: what it says of a machine on which all is well, and of what is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import saturn
from fake_gpu.environment import environment
from saturn import Task
from saturn.errors import RunFailed
from saturn.plain import supported
from saturn.worker import doctor
from warm_parent import PYTHON_DIR

SATURN = Path(sys.executable).parent / "saturn"


def findings(
    directory: Path, *arguments: str, variables: Mapping[str, str] | None = None
) -> tuple[int, dict[str, Any]]:
    """The exit code of `saturn doctor`, and its findings by their subjects."""
    inherited = {**os.environ, **(variables or {})}
    path = os.pathsep.join(filter(None, [str(PYTHON_DIR), inherited.get("PYTHONPATH", "")]))
    done = subprocess.run(
        [SATURN, "doctor", "--json", *arguments],
        cwd=directory,
        env={**inherited, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    said = json.loads(done.stdout)
    assert said["version"] == 1 and said["ok"] == (done.returncode == 0)
    return done.returncode, {each["subject"]: each for each in said["findings"]}


def test_a_machine_on_which_the_tests_pass_is_well(tmp_path: Path) -> None:
    code, found = findings(tmp_path, "--python", sys.executable)
    assert code == 0, found
    assert not [each for each in found.values() if each["mark"] == "bad"]
    assert set(found) >= {
        *("saturn", "GPUs", "cores", "device locks", "host memory", "shared memory"),
        *("open files", "processes", "locked memory", "runs directory", "journal"),
        *("control socket", "SATURN_HOME", "temporary files"),
        *("Python", "saturn in Python", "packages", "torch", "warm parent", "ranks"),
    }
    assert found["torch"]["found"].startswith(str(supported.torch_version()).partition("+")[0])
    assert sys.executable in found["Python"]["found"]
    assert list(tmp_path.iterdir()) == [], "nothing stays behind"


@pytest.mark.slow
@pytest.mark.usefixtures("fake_gpus")
def test_gpus_compute(tmp_path: Path) -> None:
    _, found = findings(
        tmp_path, "--python", sys.executable, variables=environment(devices=2, names=["H200"])
    )
    assert found["GPUs"]["found"].startswith("2: H200 (")
    assert found["CUDA"]["mark"] == "ok", found["CUDA"]
    assert found["CUDA"]["found"].startswith("torch computes on 2 GPUs; NCCL ")
    _, found = findings(
        tmp_path,
        *("--python", sys.executable),
        variables={**environment(devices=2), "CUDA_VISIBLE_DEVICES": "5"},
    )
    assert found["GPUs"]["mark"] == "bad" and "which is no whole GPU" in found["GPUs"]["found"]


def test_a_python_without_saturn_is_one_line(tmp_path: Path) -> None:
    code, found = findings(tmp_path, "--python", "/nowhere/python")
    assert code == 5
    assert found["Python"]["found"].startswith("/nowhere/python can't be started: there is no such")
    done = subprocess.run(
        [SATURN, "doctor", "--python", "/nowhere/python", "--runs-dir", "/proc/nowhere"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 5 and done.stderr.startswith("4 things that runs need")
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("bad   Python")]
    assert "/nowhere/python can't be started" in line


def test_versions_that_pip_is_told_are_those_that_are_checked() -> None:
    pyproject = (PYTHON_DIR.parent / "pyproject.toml").read_text()
    assert f'"{supported.TORCH_REQUIREMENT}"]' in pyproject
    (major, first), (_, after) = supported.FIRST_TORCH, supported.NEXT_TORCH
    for page in ("README.md", "docs/install.md", "CHANGELOG.md"):
        text = (PYTHON_DIR.parent / page).read_text()
        assert f"torch {major}.{first} to {major}.{after - 1}" in text, page


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ("2.11.0", None),
        ("2.15.0+cu132", None),
        ("2.15.1.dev20261101", None),
        ("2.10.0", "torch 2.10.0 is none that this Saturn supports: "),
        ("2.16.0a0+git1234", "torch 2.16.0a0+git1234 is none that"),
        ("3.0", "torch 3.0 is none that"),
        (None, f"torch is not installed for {sys.executable}: "),
    ],
)
def test_another_torch_is_told_in_one_line(version: str | None, words: str | None) -> None:
    problem = supported.torch_problem(version)
    if words is None:
        assert problem is None
    else:
        assert problem is not None and problem.startswith(words) and "\n" not in problem
        assert f"-m pip install '{supported.TORCH_REQUIREMENT}'" in problem


def test_a_run_is_refused_with_another_torch(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    task = Task(
        lambda: None, lambda: None, lambda out, labels: out, saturn.HParams(lr=0.1, epochs=1)
    )
    monkeypatch.setattr(supported, "torch_version", lambda: "2.1.0")
    with pytest.raises(RunFailed, match=r"torch 2\.1\.0 is none that this Saturn supports"):
        saturn.orchestrate([task], runs_dir=tmp_path / "runs")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.setenv(supported.ANY_TORCH, "1")
    supported.check_torch()
    # Without any, there is nothing to go on with.
    monkeypatch.setattr(supported, "torch_version", lambda: None)
    with pytest.raises(RunFailed, match="torch is not installed"):
        supported.check_torch()


def test_the_doctor_looks_no_further_than_a_torch_that_is_not_supported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "torch_version", lambda: "2.1.0")
    found = {each["subject"]: each for each in doctor.examine(0)}
    assert set(found) == {"Python", "saturn in Python", "packages", "torch"}
    assert found["torch"]["mark"] == "bad"
    assert str(found["torch"]["advice"]).endswith("to go on with it, untested")


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_ranks_that_never_meet_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def hang(rank: int, scratch: Path) -> None:
        time.sleep(600)

    monkeypatch.setattr(doctor, "_be_rank", hang)
    monkeypatch.setattr(doctor, "_PATIENCE_S", 0.2)
    (found,) = doctor._ranks()
    assert found["mark"] == "bad" and "did not connect" in str(found["found"])


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_what_ranks_complain_of_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def complain(rank: int, scratch: Path) -> None:
        (scratch / f"complaint-{rank}").write_text("no route to host")
        os._exit(1)

    monkeypatch.setattr(doctor, "_be_rank", complain)
    (found,) = doctor._ranks()
    assert found["found"] == "two processes could not exchange data: no route to host"


def test_a_look_that_fails_is_a_finding() -> None:
    def fail() -> Any:
        raise OSError("libcudart.so.12: cannot open shared object file\nmore")
        yield

    (found,) = doctor._tried("torch", fail)
    assert found["mark"] == "bad"
    assert found["found"] == "fails: libcudart.so.12: cannot open shared object file"


def test_a_python_without_what_saturn_needs_says_so_in_a_sentence(tmp_path: Path) -> None:
    program = tmp_path / "saturn"
    program.write_bytes(SATURN.read_bytes())
    python = tmp_path / "python3"  # beside the program, so the program takes it; without packages
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    for path in (program, python):
        path.chmod(0o755)
    (tmp_path / "sweep.toml").touch()

    def said(*command: str, python_path: str) -> tuple[int, str]:
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": python_path},
            capture_output=True,
            text=True,
            check=False,
        )
        return done.returncode, done.stderr

    for python_path, words in (
        (str(PYTHON_DIR), "Saturn needs the package `cloudpickle`, which "),
        (str(tmp_path), "does not have the package `saturn`, which this command needs"),
    ):
        code, error = said(str(program), "sweep", "sweep.toml", python_path=python_path)
        assert code == 5 and error.startswith("error: ") and words in error, error
        assert len(error.splitlines()) == 1 and " -m pip install " in error
    _, error = said(str(python), "-c", "import saturn", python_path=str(PYTHON_DIR))
    assert error.splitlines()[-1].endswith(" -m pip install cloudpickle")
