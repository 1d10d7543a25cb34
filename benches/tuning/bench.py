"""Successive halving by Saturn beside Ray Tune's, and beside training everything.

usage: bench.py [--slots N] [--steps N] [--only WAY,…] [--points FILE] [--out PAGE]

27 configurations of the demo's language model: nine learning rates of three depths. All ways have
the same slots (CPU cores), the same rungs and the same evaluations of the same held-out text:

- `saturn`: Saturn with ASHA.
- `ray-one`, `ray-all`: Ray Tune's ASHA with one slot a trial, and with all slots for each trial.
- `everything`: Saturn without a stopper.

What is compared is the time from nothing (imports included) to the best loss that all ways come to.
Prints a table; `--out` writes it as a page, `--points` every evaluation of every way as JSON. What
Ray Tune needs beside Ray is not among this project's dependencies: `make bench-tuning` gets it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

NAMES = {
    "saturn": "Saturn, ASHA",
    "ray-one": "Ray Tune, ASHA, one slot a trial",
    "ray-all": "Ray Tune, ASHA, all slots for each trial",
    "everything": "Saturn, no stopper",
}
WAYS = tuple(NAMES)
ETA = 3
BATCH_SIZE = 4
PAGE = """# Searches, measured

*How soon does a search find its best model, beside Ray Tune?*

`make bench-tuning` writes this page. Load of the machine before: {load:.1f} on {cores} cores.

27 configurations of the demo's language model, nine learning rates of three depths, {steps} \
steps each at most, on {slots} CPU slots. All ways evaluate the same held-out text every {first} \
steps. Ways that stop early do so by successive halving (ASHA), with the first rung at {first} \
steps and a third kept at each rung. Time counts from the start of the program, so it includes \
imports, and for Saturn also the trials, since no results of earlier runs are used. The table \
compares the time until the first evaluation that is as good as {loss:.4f}, the best loss that \
all ways reached.

{table}
"""
#: Windows of held-out text that an evaluation takes.
WINDOWS = 64
#: Steps of the first rung, as a part of all.
FIRST_RUNG = 27


def configurations() -> list[dict[str, Any]]:
    """Nine learning rates of three depths."""
    rates = [1e-5 * 10 ** (power / 2.5) for power in range(9)]
    return [{"lr": float(f"{lr:.2g}"), "layers": layers} for layers in (2, 3, 4) for lr in rates]


def held_out(**_: Any):
    """The last tenth of the demo's text, a few windows of it."""
    import torch
    from sweep import source_text
    from torch.utils.data import DataLoader

    text = torch.frombuffer(bytearray(source_text()), dtype=torch.uint8)
    text = text[len(text) * 9 // 10 :]
    windows = text[: WINDOWS * 128].view(-1, 128)

    def collate(rows):
        tokens = torch.stack(rows).long()
        return {"input_ids": tokens, "labels": tokens}

    return DataLoader(windows, batch_size=16, collate_fn=collate)


def by_saturn(slots: int, steps: int, stopper: Any, directory: Path) -> list[tuple[float, float]]:
    """(Unix time, loss) of each evaluation of a run of Saturn."""
    from saturn import Evaluation, HParams, Task, orchestrate
    from sweep import corpus, language_model

    tasks = [
        Task(
            language_model,
            partial(corpus, BATCH_SIZE),
            None,
            HParams(lr=one["lr"], batch_count=steps, layers=one["layers"]),
            name=f"l{one['layers']}-lr{one['lr']:g}",
            evaluate=Evaluation(held_out),
            evaluate_every=steps // FIRST_RUNG,
            best=("eval_loss", "min"),
        )
        for one in configurations()
    ]
    # As from nothing: nothing is known of earlier runs.
    result = orchestrate(
        tasks, devices=slots, stopper=stopper, runs_dir=directory, profile="none", interval=60
    )
    found = []
    for path in result.run_dir.glob("tasks/*/metrics.jsonl"):
        for line in map(json.loads, path.read_text().splitlines()):
            if "evaluation" in line:
                found.append((line["t"], line["evaluation"]["eval_loss"]))
    return found


def by_ray(slots: int, steps: int, a_trial: int, directory: Path) -> list[tuple[float, float]]:
    """(Unix time, loss) of each evaluation of a run of Ray Tune, `a_trial` slots for each trial."""
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    log = directory / "losses.jsonl"

    def train(given: dict[str, Any]) -> None:
        import torch

        one = given["one"]

        sys.path.insert(0, str(ROOT / "examples"))
        from sweep import corpus, language_model

        torch.set_num_threads(a_trial)
        torch.manual_seed(0)
        model = language_model(one["layers"])
        optimizer = torch.optim.AdamW(model.parameters(), lr=one["lr"])
        batches = iter(corpus(BATCH_SIZE))
        held = list(held_out())
        for step in range(1, steps + 1):
            loss = model(**next(batches)).loss
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if step % (steps // FIRST_RUNG) == 0:
                model.eval()
                with torch.inference_mode():
                    losses = [model(**batch).loss.item() for batch in held]
                model.train()
                mean = sum(losses) / len(losses)
                with log.open("a") as file:
                    file.write(json.dumps([time.time(), mean]) + "\n")
                tune.report({"loss": mean, "step": step})

    ray.init(num_cpus=slots, include_dashboard=False, log_to_driver=False)
    asha = ASHAScheduler(
        time_attr="step",
        max_t=steps,
        grace_period=steps // FIRST_RUNG,
        reduction_factor=ETA,
    )
    tune.Tuner(
        tune.with_resources(train, {"cpu": a_trial}),
        param_space={"one": tune.grid_search(configurations())},
        tune_config=tune.TuneConfig(metric="loss", mode="min", scheduler=asha),
        run_config=tune.RunConfig(storage_path=str(directory), verbose=0),
    ).fit()
    return [tuple(json.loads(line)) for line in log.read_text().splitlines()]


def train(way: str, slots: int, steps: int, directory: Path) -> list[tuple[float, float]]:
    """(Unix time, loss) of each evaluation, whichever way."""
    if way.startswith("ray"):
        return by_ray(slots, steps, 1 if way == "ray-one" else slots, directory)
    from saturn.stoppers import ASHA

    stopper = ASHA(min_steps=steps // FIRST_RUNG, eta=ETA) if way == "saturn" else None
    return by_saturn(slots, steps, stopper, directory)


def measured(way: str, slots: int, steps: int) -> dict[str, Any]:
    """What a way takes, in a process of its own from nothing."""
    with tempfile.TemporaryDirectory() as name:
        out = Path(name) / "found.json"
        began = time.time()
        command = [sys.executable, __file__, "--way", way, "--points", str(out)]
        command += ["--slots", str(slots), "--steps", str(steps), "--directory", name]
        environment = {**os.environ, "SATURN_HOME": f"{name}/home"}
        subprocess.run(command, env=environment, check=True, stdout=sys.stderr)
        took_s = time.time() - began
        points = sorted((at - began, loss) for at, loss in json.loads(out.read_text()))
    return {"way": way, "took_s": took_s, "points": points}


def time_to(points: list[tuple[float, float]], loss: float) -> float:
    """Seconds to the first evaluation that is as good."""
    return next(at for at, one in points if one <= loss)


def common_loss(found: list[dict[str, Any]]) -> float:
    """The best loss that all ways came to."""
    return max(min(loss for _, loss in one["points"]) for one in found)


def table_of(found: list[dict[str, Any]]) -> str:
    """A row a way, in markdown."""
    common = common_loss(found)
    lines = [
        f"| | until loss {common:.4f} | until the end | best loss | evaluations |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in found:
        points = one["points"]
        best = min(loss for _, loss in points)
        lines.append(
            f"| {NAMES[one['way']]} | {time_to(points, common):.0f} s | {one['took_s']:.0f} s "
            f"| {best:.4f} | {len(points)} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--slots", type=int, default=os.cpu_count())
    parser.add_argument("--steps", type=int, default=810)
    parser.add_argument("--only", default=",".join(WAYS))
    parser.add_argument("--points", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--way", help=argparse.SUPPRESS)
    parser.add_argument("--directory", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        found = train(args.way, args.slots, args.steps, Path(args.directory))
        args.points.write_text(json.dumps(found))
        return
    load = os.getloadavg()[0]
    found = [measured(way, args.slots, args.steps) for way in args.only.split(",")]
    if args.points:
        args.points.write_text(json.dumps(found))
    table = table_of(found)
    print(table)
    if args.out:
        args.out.write_text(
            PAGE.format(
                load=load,
                cores=os.cpu_count(),
                slots=args.slots,
                steps=args.steps,
                first=args.steps // FIRST_RUNG,
                loss=common_loss(found),
                table=table,
            )
        )


if __name__ == "__main__":
    main()
