"""Writes the workloads of the evaluation, and the step times that the estimator gives.

    .venv/bin/python benches/evaluation/workloads.py

Three folders: `published` has the grids of the Saturn papers, with step times by `saturn estimate`.
`measured` has grids with the step times of `benches/profile/a800-measured.csv`. `limits` has
workloads on which Saturn gains little or nothing.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from program import answer

HERE = Path(__file__).resolve().parent
PRECISIONS = ("fp32", "tf32", "bf16")
#: GPipe recomputes each micro-batch in its backward pass; Saturn's own pipeline (1F1B) does not.
PIPELINES = ("gpipe", "1f1b")
NODES = (1, 2)
#: The techniques of the papers: data parallelism, FSDP, GPipe, and spilling to host memory.
TECHNIQUES = ("ddp", "fsdp", "pipeline", "offload")
#: Terms of an estimate that a recomputing pipeline has four thirds of: a forward pass more.
RECOMPUTED = ("matrix products", "activations' memory traffic", "pipeline bubble")
EPOCHS = 10
LEARNING_RATES = 3
#: Models with their configuration, batches, and samples of an epoch. WikiText-2 has 2.39 million
#: tokens of GPT-2, in samples of 1024.
PUBLISHED: dict[str, tuple[dict[str, str], tuple[int, int], int]] = {
    "text": (
        {
            "gpt2-xl": "benches/evaluation/models/gpt2-xl.json",
            "gpt-j-6b": "params=6.05e9,layers=28,hidden=4096,heads=16,vocab=50400",
        },
        (16, 32),
        2335,
    ),
    "image": ({"vit-g14": "benches/evaluation/models/vit-g14.json"}, (64, 128), 1281167),
}
#: Models of the measured table, with the steps of their long tasks; short ones have half.
MEASURED = {
    "text": {"gpt2-xl": 18_000, "t5-1.2b": 28_000},
    "image": {"vit-base": 400_000, "bert-large": 120_000},
    "large": {"gpt2-xl": 18_000, "llama-7b": 3_000},
    "mixed": {"gpt2-xl": 9_000, "t5-1.2b": 12_000, "bert-large": 20_000, "vit-base": 60_000},
}
#: Steps of an hour on eight GPUs under the fastest technique.
HOUR = {"gpt2-xl": 6_800, "t5-1.2b": 14_900, "bert-large": 23_200, "vit-base": 73_100}
NUM_TASKS = (1, 2, 3, 4, 6, 8, 12, 24)
#: Seconds of a task on eight GPUs.
LENGTHS = (15, 60, 240, 900, 3600, 14_400)
A800 = 'profile = "../../profile/a800-measured.csv"\n'
#: Seconds of a launch, and of a checkpoint.
LOAD_S, SAVE_S = 45, 15
COSTS = f"\n[costs]\nload_s = {LOAD_S}\nsave_s = {SAVE_S}\n"


def num_steps(samples: int, batch: int) -> int:
    """Steps of all epochs; the last batch of an epoch may be smaller."""
    return EPOCHS * math.ceil(samples / batch)


def task(name: str, model: str, steps: int, count: int) -> str:
    """An entry of a workload."""
    of_it = f'model = "{model}"\nsteps = {steps}\ncount = {count}\n'
    return f'\n[[tasks]]\nname = "{name}"\n{of_it}'


def node(count: int) -> str:
    """Nodes of eight GPUs."""
    return f"\n[[nodes]]\ngpus = 8\ncount = {count}\n"


def estimates(grid: str, precision: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Rows of `saturn estimate` that surely fit, by model and batch."""
    models, batches, _ = PUBLISHED[grid]
    for model, config in models.items():
        sizes = ("--batch", ",".join(map(str, batches)), "--precision", precision)
        found = answer("estimate", config, "--gpu", "a100-40gb", *sizes)
        for row in found["rows"]:
            if row["technique"] in TECHNIQUES and row["verdict"] == "fits":
                yield f"{model}-b{row['batch']}", row


def step_s(row: dict[str, Any], pipeline: str) -> float:
    """Seconds of a step by an estimate."""
    seconds = float(row["step_s"]["value"])
    if row["technique"] == "pipeline" and pipeline == "gpipe":
        terms = row["terms"]
        seconds += sum(term["seconds"] for term in terms if term["part"] in RECOMPUTED) / 3
    return seconds


def published() -> Iterator[tuple[str, str]]:
    """The papers' grids: twelve tasks for text, and the six of ViT-G for images."""
    for grid, (models, batches, samples) in PUBLISHED.items():
        for precision in PRECISIONS:
            for pipeline in PIPELINES:
                name = f"{grid}-{precision}-{pipeline}"
                table = "model,gpus,nodes,technique,step_s\n"
                for model, row in estimates(grid, precision):
                    seconds = step_s(row, pipeline)
                    table += f"{model},{row['gpus']},1,{row['technique']},{seconds:.5g}\n"
                yield f"published/{name}.csv", table
                tasks = "".join(
                    task(
                        f"{model}-b{batch}",
                        f"{model}-b{batch}",
                        num_steps(samples, batch),
                        LEARNING_RATES,
                    )
                    for model in models
                    for batch in batches
                )
                for nodes in NODES:
                    text = f'profile = "{name}.csv"\n{COSTS}{node(nodes)}{tasks}'
                    yield f"published/{name}-{nodes}.toml", text


def measured_tasks(grid: str) -> Iterator[tuple[str, str, int]]:
    """Name, model and steps of each entry of a grid; an entry is three tasks."""
    for model, steps in MEASURED[grid].items():
        if grid == "mixed":
            yield model, model, steps
        else:
            yield f"{model}-long", model, steps
            yield f"{model}-short", model, steps // 2


def measured() -> Iterator[tuple[str, str]]:
    """Twelve tasks of models of the measured table."""
    for grid in MEASURED:
        tasks = "".join(task(*entry, 3) for entry in measured_tasks(grid))
        for nodes in NODES:
            yield f"measured/{grid}-{nodes}.toml", f"{A800}{COSTS}{node(nodes)}{tasks}"


def limits() -> Iterator[tuple[str, str]]:
    """Few tasks, short tasks, and models that scale perfectly."""
    models = list(HOUR)
    trials = "trials = true  # no step time is known at the beginning\n"
    for number in NUM_TASKS:
        tasks = ""
        for place in range(number):
            model = models[place % len(models)]
            tasks += task(f"{model}-{place}", model, HOUR[model], 1)
        yield f"limits/tasks-{number}.toml", f"{A800}{trials}{COSTS}{node(1)}{tasks}"
    for length in LENGTHS:
        entries = [task(model, model, steps * length // 3600, 3) for model, steps in HOUR.items()]
        text = f"{A800}{trials}{COSTS}{node(1)}{''.join(entries)}"
        yield f"limits/length-{length}.toml", text
    perfect = "{ ddp = { 1 = 8.0, 2 = 4.0, 4 = 2.0, 8 = 1.0 } }"
    for nodes in NODES:
        tasks = f'\n[[tasks]]\nname = "perfect"\ncount = 12\nsteps = 3600\nstep_s = {perfect}\n'
        yield f"limits/perfect-{nodes}.toml", f"{COSTS.lstrip()}{node(nodes)}{tasks}"


def files() -> Iterator[tuple[Path, str]]:
    """Every file, with its text."""
    for made in (published(), measured(), limits()):
        for name, text in made:
            if name.endswith(".toml"):
                text = f"# Written by benches/evaluation/workloads.py\n{text}"
            yield HERE / name, text


def main() -> None:
    """Writes all files."""
    for path, text in files():
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    print(f"{sum(1 for _ in files())} files in {HERE}")


def published_hours() -> dict[str, dict[str, list[float]]]:
    """Hours on one and on two nodes, as the papers have them."""
    data = json.loads((HERE / "published.json").read_text())
    return {grid: data[grid] for grid in PUBLISHED}


if __name__ == "__main__":
    main()
