"""Read the tasks' reports from their `metrics.jsonl` while these are written.

A training loss is noisy, so a tuner sees the mean over the last `WINDOW` steps, and not after every
step. It sees each of the first 50 steps, then one whenever training is 2% further. A loss that is
not finite is seen at once, and a task with `WINDOW` such losses in a row has diverged. Every value
of an evaluation is seen. The steps of a task that another one continues don't count here.

A step is seen only once, even if it is trained again after a crash.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from saturn.plain.measures import number
from saturn.stoppers.progress import LOSS

#: Number of steps over which a loss is averaged.
WINDOW = 10
#: A loss is seen again once training is 1/50 further.
_PART = 50


@dataclass(frozen=True)
class Look:
    """A task's reported values after `step` steps; NaN for a value that was not finite."""

    task: str
    step: int
    values: dict[str, float]


class TaskReports:
    """The metrics file of one task, read from its beginning."""

    def __init__(
        self, task: str, path: Path, metrics: Collection[str], *, first_step: int = 0
    ) -> None:
        """`metrics` are the names of the metrics that are wanted.

        `first_step` is the number of steps of the task that it continues.
        """
        self._task, self._path, self._metrics = task, path, metrics
        self._first_step = first_step
        self._position = 0
        self._losses: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        #: The last step that was seen, by metric.
        self._seen: dict[str, int] = {}
        #: Names of the metrics of its evaluations, once one was read.
        self.evaluated: set[str] = set()

    def was_seen(self, step: int, metrics: Collection[str]) -> None:
        """Note that an earlier process saw these metrics after `step` steps."""
        for metric in metrics:
            self._seen[metric] = max(step, self._seen.get(metric, 0))

    def read(self) -> Iterator[Look]:
        """The looks that have become due since the last call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return  # the task has not trained yet
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for text in whole.splitlines():
            try:
                line = json.loads(text)
                step = int(line["step"])
            except (ValueError, KeyError, TypeError):
                continue  # a line that a crash has torn
            values = self._values(step, line)
            if values:
                self.was_seen(step, values)
                yield Look(self._task, step, values)

    @property
    def has_diverged(self) -> bool:
        """Whether none of the last `WINDOW` losses is finite."""
        is_whole = len(self._losses) == WINDOW
        return is_whole and not any(math.isfinite(loss) for _, loss in self._losses)

    def _values(self, step: int, line: dict[str, object]) -> dict[str, float]:
        evaluation = line.get("evaluation")
        if isinstance(evaluation, dict):
            self.evaluated |= set(evaluation)
            return {
                metric: _number(evaluation[metric])
                for metric in self._metrics
                if metric != LOSS and metric in evaluation and step > self._seen.get(metric, -1)
            }
        if "loss" not in line:
            return {}
        while self._losses and self._losses[-1][0] >= step:
            self._losses.pop()  # the step is trained again after a crash
        loss = _number(line["loss"])
        self._losses.append((step, loss))
        seen = self._seen.get(LOSS, -1)
        is_due_after = (seen - self._first_step) // _PART
        is_due = step > seen and (step - seen >= is_due_after or math.isnan(loss))
        if LOSS not in self._metrics or not is_due:
            return {}
        return {LOSS: math.fsum(one for _, one in self._losses) / len(self._losses)}


def _number(value: object) -> float:
    found = number(value)
    return math.nan if found is None or not math.isfinite(found) else found
