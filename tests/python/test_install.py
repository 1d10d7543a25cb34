"""The wheel holds all of Saturn: installed outside the checkout, everything works from there.

torch and what else Saturn needs are those of the tests' own environment, which the fresh one is
shown by a `.pth` file: they are not downloaded again. The checkout's package stays out of sight.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from saturn.plain.supported import TORCH_REQUIREMENT
from test_pages import ROOT, blocks
from test_walkthrough import WALK_THROUGH

pytestmark = pytest.mark.slow

PACKAGE = ROOT / "python" / "saturn"


@dataclass(frozen=True)
class Environment:
    """A virtual environment with Saturn installed, and a working directory beside it."""

    bin: Path
    directory: Path

    def run(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        environment = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "MAKEFLAGS")}
        environment |= {
            "PATH": f"{self.bin}{os.pathsep}/usr/bin{os.pathsep}/bin",
            "SATURN_HOME": str(self.directory / "home"),
            "COLUMNS": "100",
        }
        return subprocess.run(
            [str(self.bin / command[0]), *map(str, command[1:])],
            cwd=self.directory,
            env=environment,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheels")
    # The tests themselves run under make, which would make it talk of directories.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    made = subprocess.run(
        ["make", "wheel", f"WHEELS={directory}"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stdout + made.stderr
    (path,) = directory.iterdir()
    return path


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Environment:
    directory = tmp_path_factory.mktemp("outside")
    fresh = directory / "environment"
    venv.create(fresh, symlinks=True)
    python = fresh / "bin" / "python"
    (site,) = (fresh / "lib").glob("python3*/site-packages")
    (site / "torch.pth").write_text(sysconfig.get_path("purelib") + "\n")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]
    command = [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)]
    done = subprocess.run(command, cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return Environment(fresh / "bin", directory)


def test_it_holds_the_program_the_package_and_the_types(wheel: Path) -> None:
    assert re.fullmatch(r"saturn_train-[\d.]+-cp310-abi3-\w+\.whl", wheel.name)
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (about,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        metadata = archive.read(about).decode()
    sources = [
        path
        for path in PACKAGE.rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so") and ".mypy_cache" not in path.parts
    ]
    assert {"py.typed", "_core.pyi", "sweep.schema.json"} <= {path.name for path in sources}
    assert {str(path.relative_to(PACKAGE.parent)) for path in sources} <= names
    assert "saturn/_core.abi3.so" in names
    assert [name for name in names if name.endswith(".data/scripts/saturn")]
    assert not [name for name in names if "__pycache__" in name or "test" in name]
    assert f"Requires-Dist: {TORCH_REQUIREMENT}" in metadata.replace(" ", "").replace(
        "Requires-Dist:", "Requires-Dist: "
    )
    # No page and no repository is claimed that isn't there.
    assert "Project-URL" not in metadata and "Home-page" not in metadata


def test_the_program_plans_completes_and_knows_its_python(installed: Environment) -> None:
    planned = installed.run("saturn", "plan", ROOT / "examples/problem.json", "--time-limit", "1")
    assert planned.returncode == 0 and "makespan" in planned.stdout, planned.stderr
    completes = installed.run("saturn", "completions", "bash")
    assert completes.returncode == 0 and "take-back" in completes.stdout
    (installed.directory / "train.py").write_text("")
    sweep = installed.directory / "sweep.toml"
    sweep.write_text('script = "train.py"\nsteps = 3\n[grid]\nlr = [0.1, 0.2]\n')
    listed = installed.run("saturn", "sweep", sweep, "--list")
    commands = [f"lr={lr}  python train.py --lr {lr}" for lr in (0.1, 0.2)]
    assert listed.stdout.splitlines() == commands, listed.stderr
    version = installed.run("saturn", "--version").stdout.split()[-1]
    asked = installed.run("saturn", "doctor", "--json")
    findings = {each["subject"]: each for each in json.loads(asked.stdout)["findings"]}
    assert str(installed.bin) in findings["Python"]["found"]
    here = findings["saturn in Python"]
    assert here["mark"] == "ok" and here["found"].startswith(f"{version}, {installed.directory}")


@pytest.mark.timeout(240)
def test_the_example_of_the_readme_trains(installed: Environment) -> None:
    python = [b.text for b in blocks() if b.page == "README.md" and b.language == "python"]
    (sweep,) = [text for text in python if "orchestrate(" in text]
    short = sweep.replace("epochs=2", "batch_count=4").replace("(64, 256)", "(64,)")
    assert short != sweep
    (installed.directory / "sweep.py").write_text(short)
    done = installed.run("python", "sweep.py")
    assert done.returncode == 0, done.stderr
    assert Path(done.stdout.strip()).is_file() and "2 of 2 tasks done" in done.stderr
    stands = json.loads(installed.run("saturn", "status", "--json").stdout)
    assert [task["stage"] for task in stands["tasks"]] == ["done", "done"]


@pytest.mark.timeout(240)
def test_the_walk_through_runs(installed: Environment) -> None:
    (installed.directory / "walk.py").write_text(
        WALK_THROUGH + "print([task.status for task in result.tasks])\n"
    )
    done = installed.run("python", "walk.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == str(["done"] * 4)
