"""A pool without processes, and tuners for its steered sweeps."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from saturn import native
from saturn.stoppers import Progress, Ruling
from saturn.stoppers.rules import Function
from saturn.stoppers.stopper import Tasks
from saturn.tasks.surroundings import Surroundings
from saturn.tuning import steered
from saturn.tuning.scope import Scope
from saturn.tuning.steered import About, SteeredSweep
from saturn.tuning.study import StudyTuner
from saturn.tuning.tuner import Stopping, Tuner


class FakePool:
    """What the process of a pool tells and is told; its tasks are what `stages` says."""

    def __init__(self, run_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.run_dir = run_dir
        self.stages: dict[str, str] = {}
        self.told: list[dict[str, Any]] = []
        self.is_closed = False
        self.was_asked = threading.Event()
        (run_dir / "steered").mkdir()
        (run_dir / "journal.db").touch()
        monkeypatch.setattr(native, "status", lambda _: json.dumps(self.status()))
        monkeypatch.setattr(native, "judged", lambda _: "[]")
        monkeypatch.setattr(native, "is_driven", lambda _: True)
        monkeypatch.setattr(native, "ask", self.ask)
        # The pool's process is this one, whose directory and paths stay as they are.
        monkeypatch.setattr(Surroundings, "take_up", lambda _: None)

    def status(self) -> dict[str, Any]:
        tasks = [
            {
                "name": name,
                "dir": f"tasks/{name}",
                "step": 3,
                "steps": 8,
                "stage": stage,
                "attempt": 1 if stage == "running" else None,
                "ended_s": 9.0 if stage in ("done", "stopped", "cancelled") else None,
                "after": [],
            }
            for name, stage in self.stages.items()
        ]
        self.was_asked.set()
        pool, trials = {"devices": 2, "busy": 2}, {"open": 0}
        status = {"is_closed": self.is_closed, "now_s": 50.0, "tasks": tasks}
        return {**status, "pool": pool, "trials": trials}

    def ask(self, run_dir: Path, text: str) -> str:
        command = json.loads(text)
        self.told.append(command)
        if command["command"] == "cancel":
            self.stages[command["task"]] = "cancelled"
        stages = {"hold": "held", "stop": "stopped", "go_on": "running"}
        for one in command.get("judgements", ()):
            if "ruling" in one:
                self.stages[one["task"]] = stages[one["ruling"]]
        return '{"ok": true}'

    def report(self, name: str, loss: float) -> None:
        (self.run_dir / "tasks" / name).mkdir(parents=True, exist_ok=True)
        path = self.run_dir / "tasks" / name / "metrics.jsonl"
        path.write_text(json.dumps({"step": 1, "loss": loss}) + "\n")

    def sweep(self, name: str, tuner: Tuner, tasks: list[str] | None) -> SteeredSweep:
        steered.write(self.run_dir, name, tuner, About(tasks, 20.0))
        return SteeredSweep(self.run_dir, name)

    def judged(self) -> list[tuple[str, str]]:
        return [
            (one["task"], one["ruling"])
            for command in self.told
            for one in command.get("judgements", ())
            if "ruling" in one
        ]


def is_bad(task: Progress) -> bool:
    return task.values("loss")[-1][1] > 1


def ends_bad() -> Stopping:
    return Stopping([Function(function=is_bad, metric="loss", mode="min")])


class Failing(StudyTuner):
    """A search whose code raises once it is asked what to do."""

    def __init__(self) -> None:
        self._metric, self._direction = "loss", "minimize"

    def check(self) -> None:
        pass

    def began(self, scope: Scope, tasks: Tasks) -> None:
        self._scope = scope

    def at(self, now_s: float, tasks: Tasks) -> list[Ruling]:
        raise ValueError("no such column")
