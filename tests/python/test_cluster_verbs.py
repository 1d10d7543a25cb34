"""`saturn run` and `saturn sweep` on a cluster: two nodes, both on this machine, train scripts."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import clusters
import pytest
import saturn.optuna

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]  # they start Ray

SATURN = Path(sys.executable).with_name("saturn")
SCRIPT = (
    'script = "train.py"\nargs = ["--steps", 60, "--step_s", 0.02]\nsteps = 60\nresume = false\n'
)


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with clusters.cluster(tmp_path_factory.mktemp("cluster"), slots=(1, 1)) as made:
        yield made.address


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "train.py").write_text(Path(__file__).with_name("counting_script.py").read_text())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run_saturn(*args: str) -> list[str]:
    """What the program prints, in lines."""
    done = subprocess.run([SATURN, *args], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def report(directory: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(
        (directory / "saturn_runs" / "it" / "report.json").read_text()
    )
    return found


def nodes(directory: Path) -> set[str]:
    """Those on which tasks were trained."""
    return {part["node"] for one in report(directory)["attempts"] for part in one["gang"]}


def test_a_sweep(directory: Path, address: str) -> None:
    """The cluster is given on the command line, how much of it is used in the file too."""
    (directory / "sweep.toml").write_text(
        f"{SCRIPT}[grid]\nlr = [0.3, 0.1, 0.2, 0.4]\n[run]\nnodes = 2\ngpus_per_node = 1\n"
    )
    printed = run_saturn("sweep", "sweep.toml", "--cluster", address, "--run-name", "it")
    assert [line.split()[1] for line in printed] == ["lr=0.1", "lr=0.2", "lr=0.3", "lr=0.4"]
    assert [task["status"] for task in report(directory)["tasks"]] == ["done"] * 4
    assert len(nodes(directory)) == 2


def test_a_search(directory: Path, address: str) -> None:
    """Two nodes train the tasks that a study suggests; the file says of which cluster."""
    space = "lr = { low = 1e-3, high = 1e-1, log = true }"
    place = f"cluster = '{address}'\n"
    (directory / "sweep.toml").write_text(
        f"{SCRIPT}[search]\ntrials = 4\n[search.space]\n{space}\n[run]\n{place}"
    )
    printed = run_saturn("sweep", "sweep.toml", "--nodes", "2", "--run-name", "it")
    assert len(printed) == 4
    assert len(nodes(directory)) == 2
    assert saturn.optuna.study_of("it").best_value > 0


def test_a_script(directory: Path, address: str) -> None:
    place = ["--cluster", address, "--nodes", "1", "--run-name", "it"]
    run_saturn("run", *place, "--no-resume", "train.py", "--odd", "length", "--steps", "30")
    (task,) = report(directory)["tasks"]
    assert (task["name"], task["status"], task["step"]) == ("train", "done", 30)
    assert len(nodes(directory)) == 1
