"""Read and check a script's reports: lines of JSON in a file, read while the script writes them.

A line has `step`, and may have `loss`, `total_steps`, `checkpoint` and any other metrics. An error
that the script would repeat is raised as `Unsound`, whose one line is for the user. A metric that
is not finite only leads to a note.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saturn.scripts.command import REPORT

#: After this many reports without a loss, a note says that the loss is missing.
_WITHOUT_LOSS = 3
#: How many characters of an unreadable line are shown.
_SHOWN = 80
#: Fields of a line that are no metrics.
_OTHER = {"step", "total_steps", "checkpoint", "t", "memory_bytes"}


class Unsound(Exception):
    """A report that is wrong; the message says what is wrong, and what would be right."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """One line of the file."""

    step: int
    loss: float | None
    metrics: dict[str, float]  # all metrics but the loss
    total_steps: int | None
    checkpoint: str | None
    at_s: float  # Unix time
    memory_bytes: int | None


class Reports:
    """The reports file of one launch, read from its beginning."""

    def __init__(
        self, path: Path, label: str, note: Callable[[str], None], *, should_have_loss: bool = True
    ) -> None:
        """`label` is the script's name in messages; `note` gets each oddity once."""
        self._path = path
        self._label = label
        self._note = note
        self._began_s = time.time()
        self._position = 0
        self._num_lines = 0
        self._last_step: int | None = None
        self._total_steps: int | None = None
        self._lacks_loss = should_have_loss
        self._noted: set[str] = set()
        path.touch(mode=0o600)

    def read(self) -> list[Report]:
        """The reports since the last call; raises `Unsound` for a wrong one."""
        with self._path.open("rb") as file:
            file.seek(self._position)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        return [self._report(line) for line in whole.decode(errors="replace").splitlines() if line]

    def _report(self, text: str) -> Report:
        self._num_lines += 1
        try:
            line = json.loads(text)
        except ValueError:
            line = None
        if not isinstance(line, dict) or "step" not in line:
            raise self._unsound(
                f"line {self._num_lines} of {REPORT} is `{text[:_SHOWN]}`; it must be JSON such as "
                '{"step": 1, "loss": 0.5}'
            )
        step = self._whole(line, "step", least=0)
        assert step is not None
        if self._last_step is not None and step < self._last_step:
            raise self._unsound(
                f"it reported step {step} after step {self._last_step}; steps must go up"
            )
        self._last_step = step
        total_steps = self._whole(line, "total_steps", least=1)
        self._total_steps = total_steps or self._total_steps
        checkpoint = line.get("checkpoint")
        if not isinstance(checkpoint, str | None):
            raise self._unsound(f"its report of step {step} has checkpoint {checkpoint!r}, no path")
        metrics = self._metrics(line)
        return Report(
            step=step,
            loss=metrics.pop("loss", None),
            metrics=metrics,
            total_steps=self._total_steps,
            checkpoint=checkpoint,
            at_s=self._time(line.get("t")),
            memory_bytes=self._whole(line, "memory_bytes", least=0),
        )

    def _metrics(self, line: dict[str, Any]) -> dict[str, float]:
        """All metrics of a line, the loss included."""
        found = {}
        for name, value in line.items():
            if name in _OTHER or value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise self._unsound(
                    f"its report of step {line['step']} has {name} {value!r}; it must be a number"
                )
            if not math.isfinite(value):
                self._point_out(name, f"{name} was {value} at step {line['step']}")
            found[name] = float(value)
        self._lacks_loss = self._lacks_loss and "loss" not in found
        if self._lacks_loss and self._num_lines == _WITHOUT_LOSS:
            self._point_out(
                "",
                "its reports have no loss, so none is shown (saturn.report(step=…, loss=…))",
            )
        return found

    def _whole(self, line: dict[str, Any], name: str, *, least: int) -> int | None:
        value = line.get(name)
        if value is None and name != "step":
            return None
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise self._unsound(
                f"line {self._num_lines} of {REPORT} has {name} {value!r}; it must be a whole "
                f"number from {least} on"
            )
        return value

    def _time(self, told: Any) -> float:
        """The line's own time, if it has a plausible one; else the time of reading."""
        now = time.time()
        if isinstance(told, int | float) and self._began_s <= told <= now:
            return float(told)
        return now

    def _point_out(self, what: str, text: str) -> None:
        if what not in self._noted:
            self._noted.add(what)
            self._note(f"{self._label}: {text}")

    def _unsound(self, text: str) -> Unsound:
        return Unsound(f"{self._label}: {text}")
