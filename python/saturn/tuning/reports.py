"""What tasks report, read from their `metrics.jsonl` while they are written.

A training loss is noisy: what a tuner sees is the mean over the last `WINDOW` steps, and not every
step's: each of the first 50, then one whenever training has gone 2% further. A loss that is no
finite number is seen at once, and a task that has none in `WINDOW` steps has diverged. Of an
evaluation every value is seen.

A step that was seen is not seen again, also where it is trained again after a crash.
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

#: Steps over which a loss is averaged.
WINDOW = 10
#: Training goes on by this part before its loss is seen again.
_PART = 50


@dataclass(frozen=True)
class Look:
    """What a task has reported after so many steps; NaN where it was no finite number."""

    task: str
    step: int
    values: dict[str, float]


class TaskReports:
    """The metrics file of one task, from its beginning."""

    def __init__(self, task: str, path: Path, metrics: Collection[str]) -> None:
        """`metrics` are those that are wanted."""
        self._task, self._path, self._metrics = task, path, metrics
        self._position = 0
        self._losses: deque[tuple[int, float]] = deque(maxlen=WINDOW)
        #: The last step that was seen, by metric.
        self._seen: dict[str, int] = {}
        #: Names of the metrics that its evaluations have, once one was read.
        self.evaluated: set[str] = set()

    def was_seen(self, step: int, metrics: Collection[str]) -> None:
        """These metrics were seen after so many steps, by an earlier process."""
        for metric in metrics:
            self._seen[metric] = max(step, self._seen.get(metric, 0))

    def read(self) -> Iterator[Look]:
        """What has come since the last call and is to be seen."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return  # it has not trained yet
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for text in whole.splitlines():
            try:
                line = json.loads(text)
                step = int(line["step"])
            except (ValueError, KeyError, TypeError):
                continue  # torn by a crash
            values = self._values(step, line)
            if values:
                self.was_seen(step, values)
                yield Look(self._task, step, values)

    @property
    def has_diverged(self) -> bool:
        """Whether none of the last `WINDOW` losses is a finite number."""
        is_whole = len(self._losses) == WINDOW
        return is_whole and not any(math.isfinite(loss) for _, loss in self._losses)

    def _values(self, step: int, line: dict[str, object]) -> dict[str, float]:
        evaluation = line.get("evaluation")
        if isinstance(evaluation, dict):
            self.evaluated |= set(evaluation)
            return {
                metric: _number(evaluation[metric])
                for metric in self._metrics
                if metric != LOSS and metric in evaluation and step > self._seen.get(metric, 0)
            }
        if "loss" not in line:
            return {}
        while self._losses and self._losses[-1][0] >= step:
            self._losses.pop()  # trained again after a crash
        loss = _number(line["loss"])
        self._losses.append((step, loss))
        seen = self._seen.get(LOSS, 0)
        is_due = step > seen and (step - seen >= seen // _PART or math.isnan(loss))
        if LOSS not in self._metrics or not is_due:
            return {}
        return {LOSS: math.fsum(one for _, one in self._losses) / len(self._losses)}


def _number(value: object) -> float:
    found = number(value)
    return math.nan if found is None or not math.isfinite(found) else found
