"""The runs that are recorded: each function trains a workload of its own in the present directory.

Each run takes half a minute to two minutes on two CPU slots, or on two nodes of two slots each. The
tasks are those of `recorded_tasks`.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "examples"))

import cluster as ray_cluster  # noqa: E402
import sweep  # noqa: E402
from recorded_tasks import (  # noqa: E402
    accuracy,
    cursed_loss,
    gpt2,
    held_out_digits,
    perceptron,
    slow,
    small_data,
    small_model,
    trainer,
    vit,
)
from saturn import HParams, StartedRun, Task, orchestrate, start  # noqa: E402

#: The name of every run: its directory is `saturn_runs/recorded`.
NAME = "recorded"


def demo() -> None:
    """The demo: twelve models of three families, nothing known."""
    orchestrate(sweep.sweep(short=True), interval=60, device_memory="200MB", name=NAME)


def demo_again() -> None:
    """The demo, with what its first run has found."""
    demo()


def demo_one_slot() -> None:
    """Half of the demo on one slot."""
    tasks = [one for one in sweep.sweep(short=True) if one.name.startswith(("gpt2-b4", "vit"))]
    orchestrate(tasks, devices=1, profile="none", name=NAME)


def readme() -> None:
    """The README's sweep, trained longer."""
    tasks = [
        perceptron(f"width{width}-lr{lr:g}", width, lr, 700)
        for width in (64, 256)
        for lr in (1e-3, 1e-2)
    ]
    orchestrate(tasks, profile="none", name=NAME)


def full_trials() -> None:
    """Every strategy is tried, and each trial ends before training begins."""
    tasks = [gpt2(2e-4, 300), gpt2(8e-4, 300), vit(5e-4, 600), vit(2e-3, 600)]
    orchestrate(tasks, trial_budget="full", profile="none", name=NAME)


def wide() -> None:
    """Tasks that need both slots, one after the other."""
    orchestrate(
        [
            vit(5e-4, 600, "fsdp", gpu_range=[2], techniques=["fsdp"]),
            vit(2e-3, 600, "ddp", gpu_range=[2], techniques=["ddp"]),
            gpt2(2e-4, 120, "tensor", gpu_range=[2], techniques=["tensor"]),
        ],
        profile="none",
        name=NAME,
    )


def many() -> None:
    """Many short tasks: launches and checkpoints are a large part."""
    tasks = [slow(f"task{index}", 30 + 5 * (index % 5)) for index in range(24)]
    orchestrate(tasks, profile="none", name=NAME)


def perceptrons() -> None:
    """Sixteen small models of many widths that compute."""
    tasks = [
        perceptron(f"width{width}-epochs{epochs}", width, 1e-2, epochs)
        for width in (64, 128, 256, 512, 1024, 1536, 2048, 3072)
        for epochs in (60, 120)
    ]
    orchestrate(tasks, profile="none", name=NAME)


def sizes() -> None:
    """Image classifiers of five batch sizes, each for a short and a long time."""
    tasks = [
        vit(1e-3, steps, f"vit-b{batch_size}-{steps}", batch_size=batch_size)
        for batch_size in (4, 8, 16, 32, 64)
        for steps in (1200 // batch_size, 3600 // batch_size)
    ]
    orchestrate(tasks, profile="none", name=NAME)


def due() -> None:
    """Hard and soft deadlines, some of which can't be kept."""
    orchestrate(
        [
            slow("soon", 200, deadline=30.0),
            slow("later", 300, deadline=80.0),
            slow("too-soon", 250, deadline=10.0, late_price=1.0),
            slow("cheap", 300, deadline=40.0, late_price=0.1),
            slow("dear", 150, deadline=40.0, late_price=5.0),
            slow("free1", 250),
            slow("free2", 200),
            gpt2(5e-4, 150, "real", deadline=60.0, late_price=1.0),
        ],
        profile="none",
        name=NAME,
    )


def uneven() -> None:
    """Tasks of very different lengths and paces."""
    lengths = [(600, 0.05), (100, 0.08), (90, 0.05), (400, 0.02), (120, 0.1), (200, 0.05)]
    tasks = [slow(f"task{index}", steps, step_s) for index, (steps, step_s) in enumerate(lengths)]
    orchestrate(tasks, profile="none", name=NAME)


def evaluations() -> None:
    """Evaluations every 40 steps, and the best checkpoint kept."""
    from saturn import Evaluation

    held_out = Evaluation(held_out_digits, accuracy)
    tasks = [
        vit(lr, 600, evaluate=held_out, evaluate_every=40, best=("accuracy", "max"))
        for lr in (2e-4, 5e-4, 1e-3, 2e-3)
    ]
    orchestrate(tasks, profile="none", name=NAME)


def often_saved() -> None:
    """A checkpoint every two seconds."""
    tasks = [gpt2(lr, 250) for lr in (1e-4, 2e-4, 4e-4, 8e-4)]
    orchestrate(tasks, checkpoint_every_s=2.0, profile="none", name=NAME)


def asha() -> None:
    """A search by successive halving."""
    rates = (1e-5, 3e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 5e-3, 2e-2)
    orchestrate([vit(lr, 900) for lr in rates], stopper="asha", profile="none", name=NAME)


def searched() -> None:
    """A search by successive halving whose rungs compare evaluations."""
    from saturn import Evaluation
    from saturn.stoppers import ASHA

    held_out = Evaluation(held_out_digits, accuracy)
    rates = (1e-6, 1e-5, 3e-5, 1e-4, 2e-4, 5e-4, 1e-3, 2e-3, 3e-3, 5e-3, 1e-2, 2e-2)
    tasks = [vit(lr, 600, evaluate=held_out, evaluate_every=50) for lr in rates]
    stopper = ASHA(metric="accuracy", mode="max", min_steps=100)
    orchestrate(tasks, stopper=stopper, profile="none", name=NAME)


def median() -> None:
    """A search by the median rule."""
    from saturn.stoppers import Median

    rates = (1e-3, 2e-3, 1e-5, 3e-5, 5e-4, 1e-6, 3e-3, 1e-4)
    tasks = [vit(lr, 700) for lr in rates]
    orchestrate(tasks, stopper=Median(min_steps=100), profile="none", name=NAME)


def optuna() -> None:
    """A study of Optuna with its median pruner."""
    import optuna as library
    from saturn.optuna import optimize

    def make_task(trial: Any) -> Task:
        return vit(trial.suggest_float("lr", 1e-5, 1e-1, log=True), 500, f"trial-{trial.number}")

    sampler = library.samplers.RandomSampler(seed=1)
    study = library.create_study(sampler=sampler)
    optimize(study, make_task, n_trials=9, profile="none", name=NAME)


def trainers() -> None:
    """Fine-tuning by transformers' Trainer."""
    tasks = [
        Task.from_trainer(partial(trainer, lr), name=f"lr{lr:g}") for lr in (1e-4, 3e-4, 1e-3, 3e-3)
    ]
    orchestrate(tasks, profile="none", name=NAME)


def lightning() -> None:
    """LightningModules, evaluated while they train."""
    source = ROOT / "examples" / "frameworks" / "lightning_sweep.py"
    text = source.read_text().partition("\ntasks = [")[0]
    module = Path("lightning_models.py")
    module.write_text(text)
    spec = importlib.util.spec_from_file_location("lightning_models", module)
    assert spec is not None and spec.loader is not None
    made: Any = importlib.util.module_from_spec(spec)
    sys.modules["lightning_models"] = made
    spec.loader.exec_module(made)
    tasks = [
        Task.from_lightning(
            *(made.Classifier, made.Data, HParams(lr=lr, batch_count=4000, width=width)),
            name=f"width{width}-lr{lr:g}",
            evaluate_every=1000,
        )
        for width in (32, 128)
        for lr in (1e-3, 1e-2)
    ]
    orchestrate(tasks, profile="none", name=NAME)


SCRIPT = """
import argparse, time
import saturn
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float)
parser.add_argument("--steps", type=int)
args = parser.parse_args()
for step in range(1, args.steps + 1):
    time.sleep(0.04)
    if saturn.report(step, args.lr / step, total_steps=args.steps):
        break
"""


def scripts() -> None:
    """Scripts that train by themselves, and can't go on from a checkpoint."""
    Path("train.py").write_text(SCRIPT)
    tasks = [
        Task.script("train.py", ["--lr", str(lr), "--steps", str(steps)], name=f"lr{lr}")
        for lr, steps in ((0.1, 300), (0.2, 200), (0.3, 400), (0.4, 150), (0.5, 250))
    ]
    orchestrate(tasks, profile="none", name=NAME)


def failing_task() -> None:
    """A task whose own loss raises; the others go on."""
    tasks = [slow(f"task{index}", 250) for index in range(5)]
    cursed = Task(
        small_model,
        small_data,
        partial(cursed_loss, 200),
        HParams(lr=0.01, batch_count=400, width=300),
        name="cursed",
    )
    orchestrate([*tasks, cursed], profile="none", raise_on_failure=False, name=NAME)


def to_be_struck() -> None:
    """Five tasks that save every three seconds: something is killed while they train."""
    tasks = [slow(f"task{index}", 250) for index in range(4)] + [gpt2(5e-4, 250)]
    orchestrate(tasks, checkpoint_every_s=3.0, profile="none", name=NAME)


def wishes() -> None:
    """Priorities, a release time, and tasks that come after others."""
    first = slow("first", 200)
    orchestrate(
        [
            slow("low", 300, priority=-2),
            slow("high", 300, priority=2),
            first,
            slow("second", 150, after="first"),
            slow("third", 100, after="second"),
            slow("late", 150, release=25.0),
        ],
        profile="none",
        name=NAME,
    )


def _steered(tasks: list[Task], deeds: list[tuple[float, Callable[[StartedRun], None]]]) -> None:
    """A run to which something is said so many seconds after its start."""
    run = start(tasks, profile="none", keep_open=True, name=NAME)
    began_s = time.monotonic()
    for at_s, deed in deeds:
        time.sleep(max(0.0, began_s + at_s - time.monotonic()))
        deed(run)
    run.close()
    run.wait()


def arrivals() -> None:
    """Tasks that come while others train."""
    _steered(
        [slow("a", 300), slow("b", 250)],
        [
            (8.0, lambda run: run.submit(slow("c", 200))),
            (12.0, lambda run: run.submit(slow("d", 150), priority=3)),
            (20.0, lambda run: run.submit(vit(1e-3, 400))),
            (21.0, lambda run: run.submit(slow("e", 100), after="a")),
        ],
    )


def paused() -> None:
    """A task is paused for a while, and another is cancelled."""
    _steered(
        [slow("a", 400), slow("b", 300), slow("c", 200), slow("d", 200)],
        [
            (8.0, lambda run: run.pause("a")),
            (16.0, lambda run: run.cancel("d")),
            (22.0, lambda run: run.unpause("a")),
        ],
    )


def new_priority() -> None:
    """A task that waits is hurried."""
    _steered(
        [slow(f"task{index}", 250) for index in range(6)],
        [
            (10.0, lambda run: run.priority("task5", 5)),
            (18.0, lambda run: run.priority("task4", 2)),
        ],
    )


def replanned() -> None:
    """Planned again every five seconds, where moves between one and two slots may pay."""
    tasks = [gpt2(lr, 300) for lr in (1e-4, 8e-4)] + [vit(1e-3, 900), vit(2e-3, 300, batch_size=32)]
    orchestrate(tasks, interval=5, profile="none", name=NAME)


def _on_two_nodes(trouble: Callable[[StartedRun, ray_cluster.Cluster, Any], None]) -> None:
    """Tasks on a Ray cluster of two nodes, and what befalls its second node."""
    lengths = (400, 300, 250, 300, 200, 250, 150, 200)
    tasks = [slow(f"task{index}", steps) for index, steps in enumerate(lengths)]
    with ray_cluster.cluster() as made:
        made.add("one")
        second = made.add("two")
        run = start(
            tasks,
            cluster=made.address,
            checkpoint_every_s=3.0,
            profile="none",
            name=NAME,
        )
        trouble(run, made, second)
        run.wait()


def two_nodes() -> None:
    """A cluster of two nodes, on which nothing happens."""
    _on_two_nodes(lambda *_: None)


def lost_node() -> None:
    """A node dies with everything on it, and another joins later."""

    def trouble(run: StartedRun, made: ray_cluster.Cluster, second: Any) -> None:
        watch_out(run.run_dir, 120, "task0")
        made.kill(second)
        time.sleep(12.0)
        made.add("three")

    _on_two_nodes(trouble)


def watch_out(run_dir: Path, step: int, task: str, within_s: float = 200.0) -> None:
    """Wait until a task has trained that far."""
    deadline_s = time.monotonic() + within_s
    metrics = run_dir / "tasks" / task / "metrics.jsonl"
    while not metrics.exists() or metrics.read_text().count("\n") < step:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"`{task}` never trains step {step}")
        threading.Event().wait(0.05)
