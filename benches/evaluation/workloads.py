"""Writes the workloads of the evaluation, and the step times that the estimator gives.

    .venv/bin/python benches/evaluation/workloads.py

Five folders. `published` has the grids of the Saturn papers, with step times by `saturn estimate`.
All others have the step times of `benches/profile/a800-measured.csv`: `measured` has grids,
`limits` workloads on which Saturn gains little or nothing, `troubles` workloads with faults,
arrivals and owners, and `ablations` the grids with and without known step times.
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
#: Lines of a workload with what goes wrong. Nodes are there, or well, for the mean of `every_s`.
TROUBLES = {
    "calm": "",
    "slow": "\n[faults]\nslow = { every_s = 7200, lasts_s = 3600, factor = 2 }\n",
    "early": "\n[faults]\nearly = { share = 0.3, at = 0.5 }\n",
    "lost": "\n[faults]\nlost = { every_s = 21600, away_s = 1800 }\n",
}
#: How four streams of tasks arrive, each of one model, and their numbers of tasks: in a Poisson
#: process, as sweeps, and by the hours of a real cluster.
STREAMS = {"poisson": 8, "bursts": 12, "hours": 11}
#: Tasks of a sweep.
SWEEP = 6
#: Seconds of a stream's task on eight GPUs.
STREAM_TASK_S = 1800
#: Mean seconds between two tasks on one node. One task at a time takes longer than that.
STREAM_EVERY_S = 1600
#: What users ask a queue for.
ASKED = "asks_gpus = 4\n"
#: Owners with the models and numbers of their tasks, hours of a task on eight GPUs, and when their
#: tasks arrive.
OWNERS = {
    "lena": ("gpt2-xl", 6, 1.0, ""),
    "omar": (
        "t5-1.2b",
        4,
        0.5,
        'arrive_s = 1800\narrivals = { kind = "poisson", every_s = 1200 }\n',
    ),
    "kim": (
        "bert-large",
        3,
        0.25,
        'arrive_s = 3600\narrivals = { kind = "poisson", every_s = 1800 }\n',
    ),
}
A800 = 'profile = "../../profile/a800-measured.csv"\n'
#: Seconds of a launch, and of a checkpoint.
LOAD_S, SAVE_S = 45, 15
COSTS = f"\n[costs]\nload_s = {LOAD_S}\nsave_s = {SAVE_S}\n"


def num_steps(samples: int, batch: int) -> int:
    """Steps of all epochs; the last batch of an epoch may be smaller."""
    return EPOCHS * math.ceil(samples / batch)


def task(name: str, model: str, steps: int, count: int, more: str = "") -> str:
    """An entry of a workload."""
    of_it = f'model = "{model}"\nsteps = {steps}\ncount = {count}\n{more}'
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


def arrivals(stream: str, nodes: int, place: int) -> str:
    """How the tasks of a model arrive; `place` is that of the model."""
    every_s = STREAM_EVERY_S / nodes  # of all models together
    num_models = len(HOUR)
    if stream == "poisson":
        return f'arrivals = {{ kind = "poisson", every_s = {num_models * every_s:g} }}\n'
    if stream == "bursts":
        # One model's sweep after the other's, so that each is of equal tasks.
        first_s, between_s = place * SWEEP * every_s, num_models * SWEEP * every_s
        more = f'kind = "bursts", size = {SWEEP}, every_s = {between_s:g}'
        return f"arrive_s = {first_s:g}\narrivals = {{ {more} }}\n"
    venus = json.loads((HERE / "venus.json").read_text())
    by_hour, size = venus["jobs_by_hour"], round(venus["burst_size"])
    a_day = 24 * 3600 / every_s / num_models
    scaled = [round(a_day * jobs / sum(by_hour), 4) for jobs in by_hour]
    return f'arrivals = {{ kind = "hours", size = {size}, per_hour = {scaled} }}\n'


def troubles() -> Iterator[tuple[str, str]]:
    """Each trouble with requests for GPUs, and without."""
    for nodes in NODES:
        for name, text in troubles_on(nodes):
            yield f"troubles/{name}-{nodes}.toml", text
            yield f"troubles/{name}-{nodes}-open.toml", text.replace(ASKED, "")


def troubles_on(nodes: int) -> Iterator[tuple[str, str]]:
    """A grid with faults, streams of tasks, and several owners."""
    head = f"{A800}{COSTS}{node(nodes)}"
    grid = "".join(task(*entry, 3, ASKED) for entry in measured_tasks("mixed"))
    for name, fault in TROUBLES.items():
        yield name, f"{A800}{COSTS}{fault}{node(nodes)}{grid}"
    for stream, count in STREAMS.items():
        tasks = ""
        for place, (model, steps) in enumerate(HOUR.items()):
            of_task = steps * STREAM_TASK_S // 3600
            more = ASKED + arrivals(stream, nodes, place)
            tasks += task(model, model, of_task, count, more)
        yield stream, head + tasks
    tasks = ""
    for owner, (model, count, hours, when) in OWNERS.items():
        steps = round(hours * HOUR[model])
        more = f'owner = "{owner}"\n{ASKED}{when}'
        tasks += task(owner, model, steps, count, more)
    yield "owners", head + tasks


def ablations() -> Iterator[tuple[str, str]]:
    """The measured grids once more, whose users ask for four GPUs."""
    for grid in MEASURED:
        tasks = "".join(task(*entry, 3, ASKED) for entry in measured_tasks(grid))
        for nodes in NODES:
            for name, trials in (("known", ""), ("trials", "trials = true\n")):
                text = f"{A800}{trials}{COSTS}{node(nodes)}{tasks}"
                yield f"ablations/{grid}-{nodes}-{name}.toml", text


def files() -> Iterator[tuple[Path, str]]:
    """Every file, with its text."""
    for made in (published(), measured(), limits(), troubles(), ablations()):
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
