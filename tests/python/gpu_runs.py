"""Whole runs on fake GPUs: a script, in a process of its own, and what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from warm_parent import PYTHON_DIR

SATURN = Path(sys.executable).with_name("saturn")
LIMIT_S = 200


class GpuRun:
    """A script of its own directory that starts the run `run`."""

    def __init__(self, directory: Path, script: str, gpus: Mapping[str, str], **env: str) -> None:
        self.directory = directory
        self.path = directory / "saturn_runs" / "run"
        (directory / "script.py").write_text(script)
        tests = Path(__file__).parent
        path = [str(PYTHON_DIR), str(tests), env.pop("PYTHONPATH", ""), gpus["PYTHONPATH"]]
        self.environment = {
            **os.environ,
            **gpus,
            "PYTHONPATH": os.pathsep.join(filter(None, path)),
            "SATURN_HOME": str(directory / "home"),
            "SATURN_LOCKS_DIR": str(directory / "locks"),
            **env,
        }
        self.shown = ""

    def start(self, *command: str | Path) -> subprocess.Popen[str]:
        return subprocess.Popen(
            command or (sys.executable, "script.py"),
            cwd=self.directory,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def wait(self, process: subprocess.Popen[str]) -> int:
        """Its exit code; what it has shown is in `shown`."""
        self.shown, _ = process.communicate(timeout=LIMIT_S)
        return process.returncode

    def run(self, *command: str | Path) -> None:
        assert self.wait(self.start(*command)) == 0, self.shown

    def report(self) -> dict[str, Any]:
        report: dict[str, Any] = json.loads((self.path / "report.json").read_text())
        return report

    def losses(self, task: str) -> dict[int, float]:
        """Loss by step; of a step that was trained twice, the last."""
        path = self.path / "tasks" / task / "metrics.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return {point["step"]: point["loss"] for point in map(json.loads, lines)}

    def specs(self) -> list[dict[str, Any]]:
        """What the run's attempts were asked to do, where their directories are still there."""
        paths = sorted(self.path.glob("tasks/*/attempts/*/spec.json"))
        return [json.loads(path.read_text()) for path in paths]
