"""Trackio: a run for each task, in a project that has the run's name.

The package trackio is imported only when a task's tracked run begins.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from saturn.loggers.interface import Logger, Point, TrackedRun, TrackedTask, require


class Trackio(Logger):
    """Tracks tasks in Trackio.

    Args:
        project: where tracked runs go; the run's name by default.
        name: the logger's name, unique among those of a run.
        init: more keywords of `trackio.init`, such as `space_id`.
    """

    def __init__(self, project: str | None = None, *, name: str = "trackio", **init: Any) -> None:
        self.name = name
        self._project, self._init = project, init

    def check(self) -> None:
        require("trackio", self.name)

    def start(self, task: TrackedTask) -> TrackedRun:
        import trackio

        # Trackio identifies runs by name: if several runs share a project, the name gets the run's.
        name = task.name if self._project is None else f"{task.run}-{task.name}"
        keywords: dict[str, Any] = {
            "project": self._project or task.run,
            "name": name,
            "group": task.run,
            "config": dict(task.config),
            "resume": "never" if task.tracked_id is None else "allow",
        }
        return _Run(trackio.init(**{**keywords, **self._init}), name)


class _Run(TrackedRun):
    def __init__(self, run: Any, name: str) -> None:
        self._run = run
        self.id = name

    def log(self, points: Sequence[Point]) -> None:
        for point in points:
            self._run.log(dict(point.values), step=point.step)

    def moved(self, step: int, strategy: str, gpus: int) -> None:
        self._run.config["saturn_strategy"] = strategy

    def ended(self, status: str) -> None:
        self._run.finish()
