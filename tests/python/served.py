"""`saturn serve` in a process of its own, and the other verbs of the program beside it."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from agents import end_agents
from saturn import native

SATURN = Path(sys.executable).with_name("saturn")


class Served:
    """`saturn serve` and the other verbs, with a home of their own."""

    def __init__(self, home: Path) -> None:
        self.log = home.with_name("serve.log")
        self.environment = {**os.environ, "SATURN_HOME": str(home)}
        self.pools = home / "pools"
        self.serve()

    def serve(self) -> None:
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                [SATURN, "serve", "--devices", "1"],
                env=self.environment,
                cwd=self.log.parent,
                stdout=log,
                stderr=log,
                # Whoever starts the tests in the background leaves Ctrl-C ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )
        self.until(lambda: native.is_driven(self.run_dir))

    @property
    def run_dir(self) -> Path:
        return (
            next(self.pools.iterdir(), self.pools / "none") if self.pools.is_dir() else self.pools
        )

    def verb(self, *arguments: str, cwd: Path, code: int = 0) -> tuple[str, str]:
        """What the verb prints, and what it says on standard error."""
        done = subprocess.run(
            [SATURN, *arguments], env=self.environment, cwd=cwd, capture_output=True, text=True
        )
        assert done.returncode == code, done.stderr
        return done.stdout, done.stderr

    def until(self, is_so: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 200
        while not is_so():
            assert time.monotonic() < deadline and self.process.poll() is None, self.log.read_text()
            time.sleep(0.05)

    def stages(self, cwd: Path) -> dict[str, str]:
        """The stage of each task."""
        status = json.loads(self.verb("status", "pool", "--json", cwd=cwd)[0])
        return {task["name"]: task["stage"] for task in status["tasks"]}

    def losses(self, task: str) -> dict[int, float]:
        """Loss of each step; of a step that was trained twice, the last."""
        path = self.run_dir / "tasks" / task / "metrics.jsonl"
        found = {}
        for line in path.read_text().splitlines() if path.exists() else []:
            with contextlib.suppress(json.JSONDecodeError):  # torn by a kill
                point = json.loads(line)
                found[point["step"]] = point["loss"]
        return found

    def end(self) -> None:
        """Kill the pool, and what outlives it."""
        self.process.kill()
        self.process.wait()
        end_agents(f"SATURN_HOME={self.environment['SATURN_HOME']}")
