"""What two tasks that train side by side on a CPU core each cost each other; prints markdown.

usage: neighbours.py [--seconds S] [--rounds N] [--clock wall|cpu]

Each process is pinned to one core and computes with one thread, as a CPU slot does. In every round
a model trains alone and then beside each neighbour, so that what else the machine does hits both
alike; a figure is the median over rounds of the slow-down within a round. Neighbours share memory
bandwidth and the last cache; one of them does nothing but write checkpoints to the disk. Read it on
a machine that does nothing else: the last column says how much a round without any neighbour
differs from itself. Where others use the machine too, `--clock cpu` counts processor time alone:
what memory costs is in it, waiting for a core or a disk is not.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples"))

#: What is trained, and what it asks of the machine.
MODELS = {
    "gpt2": "the demo's GPT-2, batch 8: products of matrices that fit the caches",
    "vit": "the demo's vision transformer, batch 32: many small operations",
    "wide": "50M parameters under AdamW, batch 4: nothing but memory traffic",
}
SAVES = "saves"
#: Bytes of a checkpoint of the neighbour that does nothing but save.
SAVED_BYTES = 200_000_000


def training(kind: str) -> Callable[[], None]:
    """One step of a model's training."""
    import torch
    from sweep import classification_loss, corpus, digit_batches, image_classifier, language_model

    torch.manual_seed(0)
    if kind == "gpt2":
        model = language_model(4)
        batch = next(iter(corpus(8)))
        loss = lambda: model(**batch).loss  # noqa: E731
    elif kind == "vit":
        model = image_classifier(3)
        images, labels = next(iter(digit_batches(32)))
        loss = lambda: classification_loss(model(images), labels)  # noqa: E731
    else:
        model = torch.nn.Sequential(torch.nn.Linear(7000, 7000), torch.nn.Linear(7000, 2))
        inputs = torch.randn(4, 7000)
        loss = lambda: model(inputs).square().mean()  # noqa: E731
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        loss().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def saving() -> Callable[[], None]:
    """One checkpoint, synced."""
    data = os.urandom(SAVED_BYTES)

    def step() -> None:
        with tempfile.NamedTemporaryFile(dir=Path.cwd()) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    return step


def serve(kind: str, core: int, clock: Callable[[], float]) -> None:
    """For each number of seconds on standard input: step so long, and print the median step."""
    os.sched_setaffinity(0, {core})
    if kind == SAVES:
        step = saving()
    else:
        import torch

        torch.set_num_threads(1)
        step = training(kind)
    step()
    print("ready", flush=True)
    for line in sys.stdin:
        seconds: list[float] = []
        until = time.perf_counter() + float(line)
        while time.perf_counter() < until or not seconds:
            began = clock()
            step()
            seconds.append(clock() - began)
        print(statistics.median(seconds), flush=True)


class Trainer:
    """A process that trains on one core whenever it is told to."""

    def __init__(self, kind: str, core: int, clock: str) -> None:
        command = [sys.executable, __file__, "--serve", kind, str(core), "--clock", clock]
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._line()

    def begin(self, seconds: float) -> None:
        """Train for so long; returns at once."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{seconds}\n")
        self._process.stdin.flush()

    def step_s(self) -> float:
        """Median seconds a step of the time that was begun last."""
        return float(self._line())

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a trainer has died; run it with --serve to see why")
        return line


def slow_downs(own: Trainer, neighbour: Trainer | None, seconds: float, rounds: int) -> list[float]:
    """For each round, what a step takes beside a neighbour over what it takes alone, less one."""
    found = []
    for _ in range(rounds):
        own.begin(seconds)
        alone_s = own.step_s()
        if neighbour is not None:
            # It is busy before the first step that counts, and until after the last.
            neighbour.begin(seconds + 1.0)
            time.sleep(0.5)
        own.begin(seconds)
        beside_s = own.step_s()
        if neighbour is not None:
            neighbour.step_s()
        found.append(beside_s / alone_s - 1)
    return found


def main() -> None:
    """Measure every pair and print the section."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--rounds", type=int, default=5, help="how often each is repeated")
    parser.add_argument("--clock", choices=("wall", "cpu"), default="wall", help="what is counted")
    parser.add_argument("--serve", nargs=2, metavar=("KIND", "CORE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve is not None:
        clock = time.perf_counter if args.clock == "wall" else time.process_time
        serve(args.serve[0], int(args.serve[1]), clock)
        return
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) < 2:
        sys.exit("error: two tasks side by side need two cores, and this process may use one")
    print("## What neighbours cost each other\n")
    print(
        f"The time of a step beside a neighbour on another core, over its time alone: median "
        f"(least … most) of {args.rounds} rounds of {args.seconds:g} s each, {args.clock} time. "
        f"`saves` writes and syncs {SAVED_BYTES // 10**6} MB over and over.\n"
    )
    for kind, what in MODELS.items():
        print(f"- `{kind}`: {what}")
    # Whoever is not told to train waits, and takes nothing.
    own = {kind: Trainer(kind, cores[0], args.clock) for kind in MODELS}
    neighbours = {kind: Trainer(kind, cores[1], args.clock) for kind in [*MODELS, SAVES]}
    names = " | ".join(f"beside `{name}`" for name in neighbours)
    print(f"\n| model | {names} | alone again |")
    print("|---" * (len(neighbours) + 2) + "|", flush=True)
    for kind, trainer in own.items():
        cells = []
        for neighbour in [*neighbours.values(), None]:
            found = slow_downs(trainer, neighbour, args.seconds, args.rounds)
            cells.append(f"{statistics.median(found):+.1%} ({min(found):+.1%} … {max(found):+.1%})")
        print(f"| `{kind}` | {' | '.join(cells)} |", flush=True)
    for trainer in [*own.values(), *neighbours.values()]:
        trainer.close()


if __name__ == "__main__":
    main()
