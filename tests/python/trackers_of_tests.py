"""A tracker for the tests: a file of what it was told, for each tracked run."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from saturn.errors import InvalidInput
from saturn.loggers import Logger, Point, TrackedRun, TrackedTask


class Book(Logger):
    """Writes lines of JSON."""

    def __init__(
        self, directory: Path, name: str = "book", *, fails: int = 0, key: bool = True
    ) -> None:
        """`fails`: so many calls of `log` raise first. It can't work without its key."""
        self.name = name
        self._directory, self._fails, self._key = directory, fails, key

    def check(self) -> None:
        if not self._key:
            raise InvalidInput("the book has no key: get one")

    def start(self, task: TrackedTask) -> TrackedRun:
        name = task.tracked_id or f"{task.run}-{task.name}"
        path = self._directory / f"{self.name}-{name}.jsonl"
        page = Page(path, name, self._fails)
        page.write(began=task.tracked_id, lr=task.config.get("lr"))
        return page


class Page(TrackedRun):
    def __init__(self, path: Path, name: str, fails: int) -> None:
        self.id, self._path, self._fails = name, path, fails

    def write(self, **what: Any) -> None:
        with self._path.open("a") as file:
            file.write(json.dumps(what) + "\n")

    def log(self, points: Sequence[Point]) -> None:
        if self._fails:
            self._fails -= 1
            raise ConnectionError("the tracker is away\nand more")
        for point in points:
            self.write(step=point.step, **point.values)

    def moved(self, step: int, strategy: str, gpus: int) -> None:
        self.write(moved=strategy, gpus=gpus, from_step=step)

    def ended(self, status: str) -> None:
        self.write(ended=status)


def read(path: Path) -> list[dict[str, Any]]:
    text = path.read_text()
    whole = text[: text.rfind("\n") + 1]  # the last line may be half written
    return [json.loads(line) for line in whole.splitlines()]
