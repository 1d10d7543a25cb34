"""The process beside a run that sends metrics to trackers such as W&B.

The runtime starts it if a run has loggers (`loggers.pkl`), and writes events to its standard input
as JSON lines. The events are `trains` (a task, its directory, the step that it goes on from, how
and where), `ended` (a task, how) and `over`. Notes for the user go to standard output: `{"note":
…}`. The process reads the numbers from `metrics.jsonl` itself.

Each logger has a thread and reads at its own pace. So a tracker that hangs delays no other tracker,
and points that a tracker could not take are sent later. Each logger's progress is kept in the
task's directory. So a step is sent once, even if it was trained again, and a resumed task continues
its tracked run. A copy of the run, which has another id, begins tracked runs of its own, with all
steps from the first.

A call that fails is tried again later. One task may fail for good, as where a tracker refuses the
name of its metric, so other tasks don't wait for it. If two tasks fail one after the other, the
tracker itself is probably away, and the logger waits before it calls again.
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

#: How often files are read.
_LOOK_EVERY_S = 0.5
#: The wait before a failed call is tried again: at first, and at most.
_RETRY_S = (5.0, 300.0)
#: After failures of so many tasks one after the other, the tracker is taken to be away.
_IS_AWAY = 2
#: The beginning of the keys of evaluations' metrics among the steps that were sent.
_OF = "evaluation."
#: The variable with the run's id, which a copy of the run has not (`devices/outside.rs`).
_RUN_ID = "SATURN_RUN_ID"
#: Most points that are handed over in one call.
_MOST_POINTS = 500

Event = dict[str, Any]


class _Task:
    """A task as one logger follows it."""

    def __init__(self, run_dir: Path, event: Event, logger: Logger) -> None:
        self.name: str = event["task"]
        self._run_dir, self._logger = run_dir, logger
        self._directory = run_dir / event["dir"]
        self._kept = self._directory / "trackers" / f"{logger.name}.json"
        self._run_id = os.environ.get(_RUN_ID)
        state = _read(self._kept)
        if state.get("run_id", self._run_id) != self._run_id:
            state = {}  # this run is a copy of the one whose tracked run that is
        self._id: str | None = state.get("id")
        #: Steps up to these have been sent: of training, and of each metric of evaluations.
        self._told: dict[str, int] = {"step": -1, **state.get("told", {})}
        self._run: TrackedRun | None = None
        self._position = 0
        self.moves: list[Event] = []
        self.status: str | None = None
        #: How long the task waits after a failed call, and until when.
        self.wait_s, self.not_before_s = _RETRY_S[0], -math.inf

    def catch_up(self) -> bool:
        """Send what is new; returns whether the task is finished. What fails is tried again."""
        if self._run is None:
            self._run = self._logger.start(self._tracked())
            self._id = self._run.id
            self._keep()
        while self.moves:
            # The numbers before the move come first.
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
        """(points not sent yet, progress after them, where to read on in the file)."""
        points: list[Point] = []
        told, position = dict(self._told), self._position
        before = told.get("evaluation", -1)  # of all metrics, as an earlier version noted it
        for line, size in _lines(self._directory / "metrics.jsonl", position):
            step = line.get("step", 0)
            if step > until_step or len(points) == _MOST_POINTS:
                break
            position += size
            # What was sent before has been trained again.
            if isinstance(found := line.get("evaluation"), dict):
                new = {
                    name: one for name, one in found.items() if step > told.get(_OF + name, before)
                }
                line = {**line, "evaluation": new}
                told |= {_OF + name: step for name in new}
            elif step <= told["step"]:
                continue
            else:
                told["step"] = step
            if values := values_of(line):
                points.append(_merged(points, Point(step, values, line.get("t", time.time()))))
        return points, told, position

    def _keep(self) -> None:
        self._kept.parent.mkdir(mode=0o700, exist_ok=True)
        scratch = self._kept.with_suffix(".new")
        kept = {"version": 1, "id": self._id, "told": self._told, "run_id": self._run_id}
        scratch.write_text(json.dumps(kept) + "\n")
        scratch.replace(self._kept)


class _Following(threading.Thread):
    """The thread of one logger."""

    def __init__(self, run_dir: Path, logger: Logger, note: Callable[[str], None]) -> None:
        super().__init__(name=f"saturn {logger.name}", daemon=True)
        self.events: queue.Queue[Event] = queue.Queue()
        self._run_dir, self._logger, self._note = run_dir, logger, note
        self._tasks: dict[str, _Task] = {}
        self._has_failed = self._is_over = False
        self._not_before_s = -math.inf

    def run(self) -> None:
        """Follow the run until it is over and everything is sent."""
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
        """Send what is new of each task that need not wait after a failure."""
        num_failed = 0
        for name, task in list(self._tasks.items()):
            if time.monotonic() < task.not_before_s and not self._is_over:
                continue
            try:
                if task.catch_up():
                    del self._tasks[name]
                task.wait_s = _RETRY_S[0]
                num_failed = 0
            except Exception as error:
                traceback.print_exc()
                self._point_out(error)
                if self._is_over:
                    del self._tasks[name]  # the run is over, so nobody waits for another try
                    continue
                task.not_before_s = time.monotonic() + task.wait_s
                task.wait_s = min(2 * task.wait_s, _RETRY_S[1])
                num_failed += 1
                if num_failed == _IS_AWAY:
                    self._not_before_s = time.monotonic() + _RETRY_S[0]
                    return

    def _point_out(self, error: Exception) -> None:
        """Tell the user of the logger's first failure."""
        if not self._has_failed:
            self._has_failed = True
            self._note(
                f"the logger `{self._logger.name}` failed: {_one_line(error)}; training goes on, "
                "and the logger is tried again (loggers.log has more)"
            )


def main() -> None:
    """Follow the run whose directory is the first argument."""
    run_dir = Path(sys.argv[1])
    # Standard output is the runtime's, so what a tracker prints goes to standard error.
    out, sys.stdout = sys.stdout, sys.stderr
    lock = threading.Lock()

    def note(text: str) -> None:
        with lock, contextlib.suppress(OSError):
            print(json.dumps({"note": text}), file=out, flush=True)

    os.nice(10)  # training comes first
    descriptor = os.open(run_dir / "loggers.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX)  # a dead driver's process may still be sending
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
    """Events from the runtime; the end of standard input ends the run."""
    for text in sys.stdin:
        event = json.loads(text)
        yield event
        if event["type"] == "over":
            return
    yield {"type": "over"}


def _lines(path: Path, position: int) -> Iterator[tuple[dict[str, Any], int]]:
    """(line, its number of bytes) for whole lines from a position on; bad lines are empty."""
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return
    with file:
        file.seek(position)
        for text in file:
            if not text.endswith(b"\n"):
                return  # the line is still being written
            try:
                line = json.loads(text)
            except ValueError:
                line = None  # half a line, of a rank that was killed while it wrote
            yield (line if isinstance(line, dict) else {}), len(text)


def _merged(points: list[Point], point: Point) -> Point:
    """Merge the point with the last one if both are of the same step; the last one is removed."""
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
