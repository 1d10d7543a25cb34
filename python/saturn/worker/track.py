"""The process beside a run that hands what its workers write to trackers.

The runtime starts it where a run has loggers (`loggers.pkl`), and writes a line of JSON for each
thing that happens to its standard input: `trains` (a task, its directory, the step that it goes on
from, how and where), `ended` (a task, how) and `over`. What is to be told a person goes to standard
output: `{"note": …}`. The numbers it reads from `metrics.jsonl` by itself.

Each logger has a thread of its own and reads at its own pace, so that a tracker that hangs keeps no
other waiting, and what a tracker could not take is still there when it can. How far it has come is
kept in the task's directory: a step is told once, whatever was trained again, and a task goes on
in the tracked run that it had.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import math
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle  # type: ignore[import-untyped]

from saturn.loggers import Logger, Point, TrackedRun, TrackedTask
from saturn.plain.series import values_of

#: How often files are looked at.
_LOOK_EVERY_S = 0.5
#: The wait before what has failed is tried again: at first, and at most.
_RETRY_S = (5.0, 300.0)
#: Most points that are handed over at once.
_MOST_POINTS = 500

Event = dict[str, Any]


class _Task:
    """A task as one logger follows it."""

    def __init__(self, run_dir: Path, event: Event, logger: Logger) -> None:
        self.name: str = event["task"]
        self._run_dir, self._logger = run_dir, logger
        self._directory = run_dir / event["dir"]
        self._kept = self._directory / "trackers" / f"{logger.name}.json"
        state = _read(self._kept)
        self._id: str | None = state.get("id")
        #: Steps up to these are told: of training, and of evaluations.
        self._told: dict[str, int] = {"step": 0, "evaluation": 0, **state.get("told", {})}
        self._run: TrackedRun | None = None
        self._position = 0
        self.moves: list[Event] = []
        self.status: str | None = None

    def catch_up(self) -> bool:
        """Hand over what there is; whether nothing more will come. What fails is tried again."""
        if self._run is None:
            self._run = self._logger.start(self._tracked())
            self._id = self._run.id
            self._keep()
        while self.moves:
            # The numbers before it come first.
            self._log(self._run, until_step=self.moves[0]["step"])
            event = self.moves[0]
            self._run.moved(event["step"], event["strategy"], event["gpus"])
            self.moves.pop(0)
        self._log(self._run)
        if self.status is None:
            return False
        self._run.ended(self.status)
        return True

    def _tracked(self) -> TrackedTask:
        return TrackedTask(
            run=self._run_dir.name,
            run_dir=self._run_dir,
            name=self.name,
            directory=self._directory,
            config=_read(self._directory / "config.json"),
            tracked_id=self._id,
        )

    def _log(self, run: TrackedRun, until_step: float = math.inf) -> None:
        while True:
            points, told, position = self._next_points(until_step)
            if points:
                run.log(points)
                self._told = told
                self._keep()
            if position == self._position:
                return
            self._position = position

    def _next_points(self, until_step: float) -> tuple[list[Point], dict[str, int], int]:
        """Points that are not told; how far that comes; and where the file is read on."""
        points: list[Point] = []
        told, position = dict(self._told), self._position
        for line, size in _lines(self._directory / "metrics.jsonl", position):
            kind = "evaluation" if "evaluation" in line else "step"
            step = line.get("step", 0)
            if step > until_step or len(points) == _MOST_POINTS:
                break
            position += size
            if step <= told[kind]:
                continue  # it was trained again
            told[kind] = step
            if values := values_of(line):
                points.append(_merged(points, Point(step, values, line.get("t", time.time()))))
        return points, told, position

    def _keep(self) -> None:
        self._kept.parent.mkdir(mode=0o700, exist_ok=True)
        scratch = self._kept.with_suffix(".new")
        scratch.write_text(json.dumps({"version": 1, "id": self._id, "told": self._told}) + "\n")
        scratch.replace(self._kept)


class _Following(threading.Thread):
    """One logger, and what it is told."""

    def __init__(self, run_dir: Path, logger: Logger, note: Callable[[str], None]) -> None:
        super().__init__(name=f"saturn {logger.name}", daemon=True)
        self.events: queue.Queue[Event] = queue.Queue()
        self._run_dir, self._logger, self._note = run_dir, logger, note
        self._tasks: dict[str, _Task] = {}
        self._has_failed = self._is_over = False
        self._wait_s, self._not_before_s = _RETRY_S[0], -math.inf

    def run(self) -> None:
        """Until the run is over and all is told."""
        while not (self._is_over and not self._tasks):
            with contextlib.suppress(queue.Empty):
                self._take(self.events.get(timeout=_LOOK_EVERY_S))
                while True:
                    self._take(self.events.get_nowait())
            if time.monotonic() >= self._not_before_s or self._is_over:
                self._catch_up()

    def _take(self, event: Event) -> None:
        if event["type"] == "over":
            self._is_over = True
            for task in self._tasks.values():
                task.status = task.status or "stopped"
        elif event["type"] == "trains":
            name = event["task"]
            if name not in self._tasks:
                self._tasks[name] = _Task(self._run_dir, event, self._logger)
            self._tasks[name].moves.append(event)
        elif event["type"] == "ended" and event["task"] in self._tasks:
            self._tasks[event["task"]].status = event["status"]

    def _catch_up(self) -> None:
        for name, task in list(self._tasks.items()):
            try:
                if task.catch_up():
                    del self._tasks[name]
                self._wait_s = _RETRY_S[0]
            except Exception as error:
                traceback.print_exc()
                if not self._has_failed:
                    self._has_failed = True
                    self._note(
                        f"the logger `{self._logger.name}` failed: {_one_line(error)}; training "
                        "goes on, and the logger is tried again (loggers.log has more)"
                    )
                if self._is_over:
                    del self._tasks[name]  # nobody waits for another try
                    continue
                self._not_before_s = time.monotonic() + self._wait_s
                self._wait_s = min(2 * self._wait_s, _RETRY_S[1])
                return


def main() -> None:
    """Follow the run whose directory is the first argument."""
    run_dir = Path(sys.argv[1])
    # What a tracker prints is not for the runtime.
    out, sys.stdout = sys.stdout, sys.stderr
    lock = threading.Lock()

    def note(text: str) -> None:
        with lock, contextlib.suppress(OSError):
            print(json.dumps({"note": text}), file=out, flush=True)

    os.nice(10)  # training comes first
    descriptor = os.open(run_dir / "loggers.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # that of a driver that died may still be at work
    try:
        loggers: list[Logger] = cloudpickle.loads((run_dir / "loggers.pkl").read_bytes())
    except Exception as error:
        traceback.print_exc()
        note(f"the run's loggers can't be loaded: {_one_line(error)}; nothing is tracked")
        return
    following = [_Following(run_dir, logger, note) for logger in loggers]
    for one in following:
        one.start()
    for event in _events():
        for one in following:
            one.events.put(event)
    for one in following:
        one.join()


def _events() -> Iterator[Event]:
    """What the runtime tells; its end is the run's."""
    for text in sys.stdin:
        event = json.loads(text)
        yield event
        if event["type"] == "over":
            return
    yield {"type": "over"}


def _lines(path: Path, position: int) -> Iterator[tuple[dict[str, Any], int]]:
    """Whole lines from a position on, each with its bytes; those that say nothing are empty."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(position)
        for text in file:
            if not text.endswith(b"\n"):
                return  # the rest is still to be written
            try:
                line = json.loads(text)
            except ValueError:
                line = None  # a rank was killed while it wrote
            yield (line if isinstance(line, dict) else {}), len(text)


def _merged(points: list[Point], point: Point) -> Point:
    """The point, with what the last one says of the same step, which it takes the place of."""
    if points and points[-1].step == point.step:
        last = points.pop()
        return Point(point.step, {**last.values, **point.values}, point.at_s)
    return point


def _read(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def _one_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


if __name__ == "__main__":
    main()
