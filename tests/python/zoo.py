"""`make zoo`: every architecture of the zoo under every technique, and the page that tells of it.

    python tests/python/zoo.py [--only NAME,…] [--out docs/zoo.md]
    python tests/python/zoo.py --only today     # every second one; the others on the next day

Each model trains a few steps in gangs of real processes, as an attempt of a run does. What a
technique refuses, it must refuse in words; every loss of what trains must be that of `ddp` on one
slot. Anything else is a failure, and the program ends with 1.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import re
import shutil
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import closeness
import torch
from harness import Runtime, runtime
from random_chains import technique_of
from saturn.techniques import Setting
from torch import nn
from warm_parent import Warm
from zoo_models import ZOO, Architecture

STEPS = 4
#: Most ulps between the losses and those of `ddp` on one slot.
TOLERANCE = closeness.ACROSS
HEAD = """# The zoo

*Under which techniques do which architectures train, and how close are their losses?*

{architectures} architectures, a small model of each with random weights: {steps} steps under every
technique that takes it, on CPU slots. A number is the largest difference of a step's loss from that
under `ddp` on one slot, in units in the last place of the largest loss in float32. {trained} pairs
of architecture and technique trained; the largest difference is {worst:.0f}. A letter is the
reason why a technique doesn't take a model, in its own words (below). Knobs that a trial has found
to be needed stand beside the number.

Written by `make zoo`, which fails where a loss differs by {tolerance:g} or more, and where a
model fails without such a reason.

"""
PAGE = Path(__file__).resolve().parents[2] / "docs" / "zoo.md"


@dataclass(frozen=True)
class Column:
    """A technique on so many slots."""

    technique: str
    ranks: int
    knobs: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return f"{self.technique} x {self.ranks}"


BASE = Column("ddp", 1)
COLUMNS = (
    Column("ddp", 2),
    Column("fsdp", 2),
    Column("tensor", 2),
    Column("tensor+fsdp", 4, (("tensor", 2),)),
    Column("pipeline", 2),
    Column("offload", 1),
)


@dataclass(frozen=True)
class Cell:
    """What came of an architecture under a technique."""

    #: Largest difference of a loss, in ulps; None where none was trained.
    difference: float | None = None
    #: Why the technique doesn't train it, in the technique's words.
    reason: str = ""
    #: What went wrong; then all else is empty.
    failure: str = ""
    #: What the trial has found to be needed.
    knobs: tuple[tuple[str, Any], ...] = ()

    @property
    def is_right(self) -> bool:
        within = self.difference is None or self.difference < TOLERANCE
        return not self.failure and within


@contextlib.contextmanager
def ready(architectures: Sequence[Architecture]) -> Iterator[Runtime]:
    """A run directory, and a warm parent that has imported what these models need."""
    with tempfile.TemporaryDirectory(prefix="saturn-zoo-") as directory:
        root = Path(directory)
        os.environ.setdefault("SATURN_LOCKS_DIR", str(root / "locks"))
        preload = ",".join(dict.fromkeys(each.preload for each in architectures if each.preload))
        warm = Warm(root / "workers.lock", preload=preload)
        try:
            (root / "run").mkdir()
            with runtime(root / "run", warm) as opened:
                yield opened
        finally:
            warm.close()


def cells_of(run: Runtime, architecture: Architecture) -> dict[Column, Cell]:
    """An architecture's row of the page."""
    task = architecture.task()
    run.write_task(task)
    torch.manual_seed(task.seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = architecture.build()
    expected, why = _trained(run, architecture, BASE, dict(BASE.knobs))
    if expected is None:
        return {BASE: Cell(failure=why)}
    return {column: _cell(run, architecture, column, model, expected) for column in COLUMNS}


def _cell(
    run: Runtime,
    architecture: Architecture,
    column: Column,
    model: nn.Module,
    expected: dict[int, float],
) -> Cell:
    setting = Setting(
        gpus=column.ranks,
        device_kind="cpu",
        hints=architecture.hints,
        device_memory_bytes=1,  # `offload` is for devices that are too small
    )
    reason = technique_of(column.technique).not_applicable(model, setting)
    if reason is not None:
        return Cell(reason=reason)
    knobs = dict(column.knobs)
    losses, error = _trained(run, architecture, column, knobs)
    if losses is None:
        # What only shows as it trains, a trial tells, and it finds the knobs that help.
        _forget(run, architecture)
        name, technique = architecture.name, column.technique
        result = run.run(name, technique, ranks=column.ranks, kind="trial", knobs=knobs)
        told = result.of("trial")
        if not told:
            return Cell(failure=f"{error}\n{result.logs}")
        outcome = told[0]["outcome"]
        if outcome["outcome"] == "not_applicable":
            return Cell(reason=outcome["reason"])
        if outcome["outcome"] != "measured":
            return Cell(failure=f"{outcome}\n{result.logs}")
        knobs = told[0]["knobs"]
        losses, error = _trained(run, architecture, column, knobs)
        if losses is None:
            return Cell(failure=error)
    found = {name: value for name, value in knobs.items() if (name, value) not in column.knobs}
    return Cell(difference=closeness.ulps(losses, expected), knobs=tuple(found.items()))


def _trained(
    run: Runtime, architecture: Architecture, column: Column, knobs: dict[str, Any]
) -> tuple[dict[int, float] | None, str]:
    """(the losses of all steps, or None; what was said where there are none)."""
    _forget(run, architecture)
    name, technique = architecture.name, column.technique
    result = run.run(name, technique, ranks=column.ranks, steps=STEPS, knobs=knobs)
    if any(result.codes):
        return None, f"{result.messages}\n{result.logs}"
    losses = run.losses(architecture.name)
    if sorted(losses) != list(range(1, STEPS + 1)):
        return None, f"losses of other steps: {losses}"
    if not all(map(math.isfinite, losses.values())):
        return None, f"losses that are no numbers: {losses}"
    return losses, ""


def _forget(run: Runtime, architecture: Architecture) -> None:
    """The task begins anew; what was found out about its slices is kept."""
    directory = run.task_dir(architecture.name)
    shutil.rmtree(directory / "checkpoints", ignore_errors=True)
    for path in directory.glob("metrics*"):
        path.unlink()


def page(rows: dict[str, tuple[Architecture, dict[Column, Cell]]]) -> str:
    """The page, from what each architecture's cells are."""
    columns = [str(column) for column in COLUMNS]
    reasons: dict[str, int] = {}
    lines = [
        *("| architecture | kind | " + " | ".join(columns) + " |",),
        "|---" * (2 + len(columns)) + "|",
    ]
    trained = 0
    worst = 0.0
    for architecture, cells in rows.values():
        texts = []
        for column in COLUMNS:
            cell = cells.get(column, Cell(failure="ddp on one slot failed"))
            if cell.difference is not None:
                trained += 1
                worst = max(worst, cell.difference)
            texts.append(_text(cell, reasons))
        lines.append(f"| {architecture.name} | {architecture.family} | {' | '.join(texts)} |")
    head = HEAD.format(
        architectures=len(rows), steps=STEPS, trained=trained, worst=worst, tolerance=TOLERANCE
    )
    notes = [f"- **{_letter(number)}** {reason}" for reason, number in reasons.items()]
    return head + "\n".join(lines) + "\n\n## Reasons\n\n" + "\n".join(notes) + "\n"


def _text(cell: Cell, reasons: dict[str, int]) -> str:
    if cell.difference is None:
        if cell.failure:
            return "**fails**"
        return _letter(reasons.setdefault(_of_any_model(cell.reason), len(reasons)))
    number = f"{cell.difference:.0f}" if cell.is_right else f"**{cell.difference:.0f}**"
    knobs = ", ".join(f"`{name}={value}`" for name, value in cell.knobs)
    return f"{number} ({knobs})" if knobs else number


def _letter(number: int) -> str:
    """A, B, … Z, AA, AB, …"""
    first, last = divmod(number, 26)
    return (chr(64 + first) if first else "") + chr(65 + last)


def _of_any_model(reason: str) -> str:
    """The reason without the model's class, so that models share it."""
    return re.sub(r"^\w+ (?=brings no plan)", "the model ", _in_one_line(reason))


def _in_one_line(reason: str) -> str:
    return " ".join(reason.split())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", metavar="NAME,…", help="these architectures, or `today`; no page")
    parser.add_argument("--out", type=Path, default=None, help=f"the page ({PAGE.name})")
    options = parser.parse_args()
    names = [each.name for each in ZOO]
    only = options.only.split(",") if options.only else names
    if only == ["today"]:
        only = names[date.today().toordinal() % 2 :: 2]
    for name in only:
        if name not in names:
            parser.error(f"no architecture `{name}`; there are {', '.join(names)}")
    chosen = [each for each in ZOO if each.name in only]
    torch.set_num_threads(1)
    rows = {}
    num_wrong = 0
    with ready(chosen) as run:
        for architecture in chosen:
            began = time.monotonic()
            try:
                cells = cells_of(run, architecture)
            except AssertionError:  # a gang that hangs
                cells = {column: Cell(failure=traceback.format_exc()) for column in COLUMNS}
            rows[architecture.name] = architecture, cells
            for column, cell in cells.items():
                num_wrong += not cell.is_right
                told = (
                    f"{cell.difference:.1e} {dict(cell.knobs) or ''}"
                    if cell.difference is not None
                    else f"FAILS: {cell.failure[-3000:]}"
                    if cell.failure
                    else f"no: {_in_one_line(cell.reason)}"
                )
                wrong = "" if cell.is_right else "WRONG "
                print(f"{architecture.name:28} {column!s:16} {wrong}{told}", flush=True)
            print(f"{architecture.name:28} {time.monotonic() - began:.1f} s", flush=True)
    out = options.out or (None if options.only else PAGE)
    if out is not None:
        out.write_text(page(rows))
    print(f"{num_wrong} wrong of {len(rows)} architectures" if num_wrong else "all is right")
    return 1 if num_wrong else 0


if __name__ == "__main__":
    sys.exit(main())
