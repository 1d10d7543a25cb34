"""What plans say that tasks will take, beside what they take; prints markdown.

usage: predicted.py [--sweep NAME]... [--policy NAME]... [--repeat N] [--beside] [--times X]
                    [--interval S] [--keep DIR]

Three sweeps on two CPU slots, each measured from nothing: with trials as they are, and with trials
of three steps, their median taken as it is. A task's seconds are predicted from the trial of the
strategy under which it trained, and again by what the run expects once its first interval is over;
tasks that were moved in between are left out of the former. Tasks of repeated runs count together.

Read the table on a machine that does nothing else: a core that others use is what is measured
otherwise. With `--beside` this is meant: another program computes on the second core for the whole
of each run, as on a machine that is shared.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

import saturn
import torch
from saturn import HParams, Task
from torch import nn

DEVICES = 2
#: Policies that are compared: what a run is told.
POLICIES: dict[str, dict[str, Any]] = {
    "until known": {},
    "three steps": {"timed_steps": 3, "max_timed_steps": 3},
}
#: Seconds between two looks at where a run stands.
LOOK_EVERY_S = 0.25

# The demo.


def demo(times: float) -> list[Task]:
    """The demo's twelve tasks, with other numbers of steps."""
    import sweep

    tasks = sweep.sweep(short=True)
    for task in tasks:
        task.hparams.batch_count = max(20, round(task.hparams.batch_count * times))
    return tasks


# Fine-tuning with padding.


class Classifier(nn.Module):
    """A small transformer that says which of two languages a text is."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 192, padding_idx=0)
        layer = nn.TransformerEncoderLayer(192, 4, 768, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.head = nn.Linear(192, 2)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        hidden = self.encoder(self.embedding(tokens), src_key_padding_mask=tokens == 0)
        return self.head(hidden.mean(dim=1))


def texts(number: int) -> list[tuple[list[int], int]]:
    """Made-up texts, most of them short and a few of them long, as those that people write are."""
    rng = random.Random(0)
    lengths = [min(192, max(4, round(rng.lognormvariate(3.2, 0.8)))) for _ in range(number)]
    return [([rng.randrange(1, 256) for _ in range(one)], one % 2) for one in lengths]


def padded(rows: list[tuple[list[int], int]]) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch, padded to its longest text."""
    longest = max(len(tokens) for tokens, _ in rows)
    tokens = [[*tokens, *[0] * (longest - len(tokens))] for tokens, _ in rows]
    return torch.tensor(tokens), torch.tensor([label for _, label in rows])


def text_batches(number: int, batch_size: int) -> torch.utils.data.DataLoader[Any]:
    """Shuffled batches of texts."""
    return torch.utils.data.DataLoader(
        texts(number), batch_size=batch_size, shuffle=True, collate_fn=padded
    )


def fine_tuning(times: float) -> list[Task]:
    """Two batch sizes and two learning rates, one pass over the texts."""
    number = max(160, round(1280 * times))
    return [
        Task(
            Classifier,
            partial(text_batches, number, batch_size),
            nn.functional.cross_entropy,
            HParams(lr=lr, epochs=1),
            name=f"texts-b{batch_size}-lr{lr:g}",
        )
        for batch_size in (8, 32)
        for lr in (1e-4, 3e-4)
    ]


# Mixed sizes.


def perceptron(width: int, depth: int) -> nn.Module:
    """Layers of one width."""
    layers = [part for _ in range(depth) for part in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def vectors(width: int, batch_size: int) -> torch.utils.data.DataLoader[Any]:
    """Random batches."""
    data = torch.utils.data.TensorDataset(torch.randn(2048, width), torch.randint(10, (2048,)))
    return torch.utils.data.DataLoader(data, batch_size=batch_size, shuffle=True)


def mixed_sizes(times: float) -> list[Task]:
    """Eight models from small to large, no two alike, for about as long each."""
    shapes = [(64, 2), (128, 3), (256, 3), (512, 3), (768, 4), (1024, 3), (1536, 3), (2048, 2)]
    return [
        Task(
            partial(perceptron, width, depth),
            partial(vectors, width, 32),
            nn.functional.cross_entropy,
            # A step takes some milliseconds for its operations, and more for large ones.
            HParams(lr=1e-3, batch_count=max(20, round(times * 6e9 / (2e6 + width**2 * depth)))),
            name=f"mlp-{width}x{depth}",
        )
        for width, depth in shapes
    ]


SWEEPS: dict[str, Callable[[float], list[Task]]] = {
    "demo": demo,
    "fine-tuning": fine_tuning,
    "mixed sizes": mixed_sizes,
}


@dataclass
class Found:
    """What came of one or more runs."""

    #: Realised over predicted seconds a task, less one.
    from_trials: list[float] = field(default_factory=list)
    after_interval: list[float] = field(default_factory=list)
    #: The first plan's makespan and what came, of each run.
    planned_s: list[float] = field(default_factory=list)
    realised_s: list[float] = field(default_factory=list)
    #: Device-seconds of trials in each run, and the steps that each measured trial timed.
    trials_s: list[float] = field(default_factory=list)
    timed_steps: list[int] = field(default_factory=list)
    moved: int = 0


@contextlib.contextmanager
def busy_core() -> Iterator[None]:
    """Another program computes on the last core meanwhile."""
    last = max(os.sched_getaffinity(0))
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            os.sched_setaffinity(other.pid, {last})
            yield
        finally:
            other.kill()


def run(
    tasks: list[Task], policy: dict[str, Any], interval_s: float, directory: Path, found: Found
) -> None:
    """Train a sweep from nothing; adds to `found` what was predicted of it when, and what came."""
    started = saturn.start(
        tasks,
        interval_s,
        log=False,
        devices=DEVICES,
        profile="none",
        runs_dir=directory,
        **policy,
    )
    expected: dict[str, float] = {}
    first_plan_s: float | None = None
    while not expected:
        time.sleep(LOOK_EVERY_S)
        status = started.status()
        if status["status"] != "unfinished":
            break
        if first_plan_s is None and status["expected_end_s"] is not None:
            first_plan_s = status["now_s"]
        # A moment later, so that the plan that the interval asks for is there.
        if first_plan_s is not None and status["now_s"] > first_plan_s + interval_s + 3.0:
            expected = expected_seconds(status)
    result = started.wait()
    report = json.loads((result.run_dir / "report.json").read_text())
    add(report, expected, found, with_warmup=not policy)


def expected_seconds(status: dict[str, Any]) -> dict[str, float]:
    """What each task that has not ended is expected to take from its launch to its end."""
    expected = {}
    for task in status["tasks"]:
        start_s = task["started_s"] if task["attempt"] is not None else task["expected_start_s"]
        # What has trained before and waits would have two starts.
        if task["expected_end_s"] is not None and start_s is not None and task["attempts"] <= 1:
            expected[task["name"]] = task["expected_end_s"] - start_s
    return expected


def add(
    report: dict[str, Any], expected: dict[str, float], found: Found, *, with_warmup: bool
) -> None:
    """Add the figures of a run that is over."""
    totals = report["totals"]
    found.planned_s.append(totals["planned_makespan_s"])
    found.realised_s.append(totals["makespan_s"])
    measured: dict[tuple[int, str, int], dict[str, Any]] = {}
    for trial in report["trials"]:
        outcome = trial["result"]
        if outcome is None or outcome["outcome"] != "measured":
            continue
        found.timed_steps.append(outcome["timed_steps"])
        for task in trial["speaks_for"]:
            measured[task, trial["technique"], trial["gpus"]] = outcome
    found.trials_s.append(
        sum(
            (attempt["ended_s"] - attempt["launched_s"]) * attempt["gpus"]
            for attempt in report["attempts"]
            if attempt["purpose"] == "trial"
        )
    )
    for index, task in enumerate(report["tasks"]):
        if task["attempts"] != 1:
            found.moved += 1
            continue
        realised_s = task["train_s"]
        if task["name"] in expected:
            found.after_interval.append(realised_s / expected[task["name"]] - 1)
        outcome = measured.get((index, task["technique"], task["gpus"]))
        if outcome is not None:
            predicted_s = outcome["setup_s"] + task["steps"] * outcome["step_s"]
            predicted_s += outcome.get("checkpoint_s") or 0.0
            predicted_s += outcome.get("warmup_s", 0.0) if with_warmup else 0.0
            found.from_trials.append(realised_s / predicted_s - 1)


def errors(values: list[float]) -> str:
    """Median and worst of what was off, whichever way."""
    if not values:
        return "none"
    off = sorted(map(abs, values))
    return f"{statistics.median(off):.1%} / {off[-1]:.1%} ({len(off)})"


def row(name: str, policy: str, found: Found) -> str:
    """The table's row of these runs."""
    makespans = ", ".join(
        f"{planned_s:.0f} s → {realised_s:.0f} s ({realised_s / planned_s - 1:+.1%})"
        for planned_s, realised_s in zip(found.planned_s, found.realised_s, strict=True)
    )
    cells = (
        *(name, policy, errors(found.from_trials), errors(found.after_interval), makespans),
        f"{statistics.fmean(found.trials_s):.1f} device-s, "
        f"{statistics.fmean(found.timed_steps or [0]):.1f} steps timed each"
        f"{f', {found.moved} tasks moved' if found.moved else ''}",
    )
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Run the sweeps and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--sweep", action="append", choices=list(SWEEPS), help="default: all")
    parser.add_argument("--policy", action="append", choices=list(POLICIES), help="default: all")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each row")
    parser.add_argument("--beside", action="store_true", help="keep a core busy meanwhile")
    parser.add_argument("--times", type=float, default=1.0, help="times as many steps")
    parser.add_argument("--interval", type=float, default=15.0, help="seconds between re-plans")
    parser.add_argument("--keep", type=Path, help="keep the run directories there")
    args = parser.parse_args()
    print(f"## Predicted and realised{', beside another program' if args.beside else ''}\n")
    beside = ", one of which another program uses meanwhile" if args.beside else ""
    print(
        f"Sweeps on {DEVICES} CPU slots{beside}. The table gives the error of a task's predicted "
        "seconds, median / worst (number of tasks). The first prediction is by the trial of its "
        f"strategy, the second is the run's after its first interval of {args.interval:g} s. "
        "Goals: 10% and 5% in the median, 20% at worst; makespan within 5%.\n"
    )
    print("| sweep | trials | from trials | after the first interval | makespan | trials took |")
    print("|---|---|---|---|---|---|")
    for name in args.sweep or SWEEPS:
        for policy in args.policy or POLICIES:
            every = Found()
            for _ in range(args.repeat):
                with (
                    tempfile.TemporaryDirectory() as scratch,
                    busy_core() if args.beside else contextlib.nullcontext(),
                ):
                    directory = args.keep or Path(scratch)
                    tasks = SWEEPS[name](args.times)
                    run(tasks, POLICIES[policy], args.interval, directory, every)
            print(row(name, policy, every), flush=True)


if __name__ == "__main__":
    main()
