"""A run's directory with one task, and the process that tells trackers of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cloudpickle
from saturn.loggers import Logger
from warm_parent import PYTHON_DIR

ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join(
        [str(PYTHON_DIR), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    ),
}


class Followed:
    """A run's directory with one task, and the process that tracks it."""

    def __init__(self, path: Path, *loggers: Logger) -> None:
        self.path = path
        self.task = path / "tasks" / "t"
        self.task.mkdir(parents=True)
        (path / "loggers.pkl").write_bytes(cloudpickle.dumps(list(loggers)))
        (self.task / "config.json").write_text('{"lr": 0.1}')

    def write(self, first: int, last: int, *, evaluates: bool = False) -> None:
        with (self.task / "metrics.jsonl").open("a") as file:
            for step in range(first, last + 1):
                file.write(json.dumps({"step": step, "loss": step / 2, "t": 1e9 + step}) + "\n")
            if evaluates:
                found = {"eval_loss": 0.5, "nan": None}
                file.write(json.dumps({"step": last, "evaluation": found, "t": 2e9}) + "\n")

    def follow(self, *events: dict[str, Any], run_id: str = "the run's") -> list[str]:
        """Have the process hear the events, and its input end; what it tells a person."""
        done = subprocess.run(
            [sys.executable, "-m", "saturn.worker.track", str(self.path)],
            input="".join(json.dumps(event) + "\n" for event in events),
            env={**ENVIRONMENT, "SATURN_RUN_ID": run_id},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return [json.loads(line)["note"] for line in done.stdout.splitlines()]


def trains(step: int, strategy: str = "ddp on 0", gpus: int = 1) -> dict[str, Any]:
    where = {"task": "t", "dir": "tasks/t", "step": step}
    return {"type": "trains", **where, "strategy": strategy, "gpus": gpus}


def ended(status: str) -> dict[str, Any]:
    return {"type": "ended", "task": "t", "status": status}
