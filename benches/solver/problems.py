"""Seeded planning problems with scaling curves like those of real techniques.

Runtimes follow Amdahl's law with a communication term per technique and 4% noise; the work of a
task spans a factor of twenty. A class name and a seed determine a problem. The numbers are
synthetic: they imitate the shapes that trials of large models show, and claim no measurement.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

Problem = dict[str, object]


@dataclass(frozen=True)
class Family:
    """A model family: billions of parameters, memory for activations, serial share of a step."""

    params_b: float
    activations_gb: float
    serial: float
    batch: tuple[int, ...]


@dataclass(frozen=True)
class Gpu:
    """A GPU type: speed relative to the first, memory, bandwidth between GPUs and to the host."""

    speed: float
    memory_gb: float
    link_gb_s: float
    host_gb_s: float


FAMILIES = {
    "gpt2-xl": Family(1.5, 8, 0.02, (16, 32)),
    "gpt-j": Family(6.0, 12, 0.02, (16, 32)),
    "vit-g": Family(1.8, 10, 0.03, (64, 128)),
    "resnet-200": Family(0.07, 9, 0.06, (64, 128)),
    "bert-large": Family(0.34, 6, 0.04, (32, 64)),
    "llama-13b": Family(13.0, 14, 0.02, (16, 32)),
}

GPUS = {
    "a100": Gpu(1.0, 40, 200, 12),
    "v100": Gpu(0.38, 32, 100, 8),
    "h100": Gpu(2.4, 80, 350, 25),
}


def strategies(
    rng: random.Random, family: Family, batch: int, work_s: float, gpu: Gpu, counts: list[int]
) -> list[tuple[str, int, float]]:
    """(technique, GPUs, seconds) of a task with `work_s` seconds of compute on one a100."""
    work = work_s / gpu.speed
    steps = work_s / 0.9
    state_gb = 16 * family.params_b
    found = []
    for gpus in counts:
        noise = lambda: math.exp(rng.gauss(0, 0.04))  # noqa: E731
        waste = math.ceil(batch / gpus) * gpus / batch
        compute = work * (family.serial + (1 - family.serial) / gpus * waste)
        reduce = 0.0
        if gpus > 1:
            link = gpu.link_gb_s if gpus <= 8 else gpu.link_gb_s / 4
            reduce = steps * 5.6 * family.params_b * (gpus - 1) / gpus / link
        if state_gb + family.activations_gb <= gpu.memory_gb:
            found.append(("ddp", gpus, (compute + reduce) * noise()))
        if gpus > 1 and state_gb / gpus + family.activations_gb * 0.9 <= gpu.memory_gb:
            found.append(("fsdp", gpus, (compute * 1.05 + 1.6 * reduce) * noise()))
        if gpus > 1 and state_gb / gpus * 1.15 + family.activations_gb / 2 <= gpu.memory_gb:
            bubble = (gpus - 1) / max(4, batch // 2)
            pipeline = work / gpus * (1 + bubble) * 1.12 + work * family.serial / 2
            found.append(("pipeline", gpus, pipeline * noise()))
        if gpus <= 4:
            host = steps * 6 * family.params_b / gpu.host_gb_s / (1 if gpus == 1 else 1.3)
            found.append(("offload", gpus, (compute * 1.35 + host + reduce / 2) * noise()))
    return found


def problem(
    seed: str, num_tasks: int, nodes: list[tuple[int, str]], counts: list[int], span: float = 20
) -> Problem:
    """A problem of `num_tasks` tasks on `nodes` of (GPUs, type)."""
    rng = random.Random(seed)
    kinds = sorted({kind for _, kind in nodes})
    tasks = []
    for index in range(num_tasks):
        name = rng.choice(sorted(FAMILIES))
        family = FAMILIES[name]
        batch = rng.choice(family.batch)
        work_s = 3600 * span ** rng.random()
        candidates = [
            {"technique": technique, "gpus": gpus, "type": kind, "runtime_s": round(runtime, 1)}
            for kind in kinds
            for technique, gpus, runtime in strategies(
                rng, family, batch, work_s, GPUS[kind], counts
            )
        ]
        tasks.append({"name": f"{name}-b{batch}-{index}", "strategies": candidates})
    cluster = {"nodes": [{"gpus": gpus, "type": kind} for gpus, kind in nodes]}
    return {"cluster": cluster, "tasks": tasks}


ALL = list(range(1, 9))
POWERS = [1, 2, 4, 8]
THREE = [(8, "a100")] * 4 + [(8, "v100")] * 4 + [(4, "h100")] * 2
THREE_LARGE = [(8, "a100")] * 64 + [(8, "v100")] * 48 + [(4, "h100")] * 32

CLASSES: dict[str, Callable[[str], Problem]] = {
    "12 tasks, 1 node": lambda seed: problem(seed, 12, [(8, "a100")], ALL),
    "12 tasks, 2 nodes": lambda seed: problem(seed, 12, [(8, "a100")] * 2, ALL),
    "14 tasks, 3 types": lambda seed: problem(
        seed, 14, [(8, "a100"), (8, "v100"), (4, "h100")], ALL
    ),
    "30 tasks, 100 GPUs": lambda seed: problem(
        seed, 30, [(8, "a100")] * 12 + [(4, "a100")], ALL, span=5
    ),
    "24 tasks, 64 GPUs, wide gangs": lambda seed: problem(
        seed, 24, [(8, "a100")] * 8, [*POWERS, 16, 32], span=5
    ),
    "100 tasks, 64 GPUs": lambda seed: problem(seed, 100, [(8, "a100")] * 8, ALL),
    "100 tasks, 72 GPUs, 3 types": lambda seed: problem(seed, 100, THREE, ALL),
    "1000 tasks, 1024 GPUs": lambda seed: problem(seed, 1000, [(8, "a100")] * 128, ALL),
    "1000 tasks, 1024 GPUs, 3 types": lambda seed: problem(seed, 1000, THREE_LARGE, POWERS),
    "10000 tasks, 10000 GPUs": lambda seed: problem(seed, 10000, [(8, "a100")] * 1250, ALL),
}


#: Seconds that a switch in mid-run costs in the classes below.
SWITCH_COST_S = 60.0


def switchable(found: Problem) -> Problem:
    """The same problem, whose tasks may be switched in mid-run."""
    tasks = [{**task, "switch_cost_s": SWITCH_COST_S} for task in found["tasks"]]  # type: ignore[attr-defined]
    return {**found, "tasks": tasks}


SWITCH_CLASSES: dict[str, Callable[[str], Problem]] = {
    name: lambda seed, name=name: switchable(CLASSES[name](seed))  # type: ignore[misc]
    for name in ("12 tasks, 1 node", "12 tasks, 2 nodes")
}

#: Problems whose plans are let run for a while and then planned again.
REPLAN_CLASSES: dict[str, Callable[[str], Problem]] = {
    **{
        name: CLASSES[name]
        for name in (
            "12 tasks, 1 node",
            "12 tasks, 2 nodes",
            "14 tasks, 3 types",
            "30 tasks, 100 GPUs",
            "24 tasks, 64 GPUs, wide gangs",
            "100 tasks, 64 GPUs",
            "100 tasks, 72 GPUs, 3 types",
            "1000 tasks, 1024 GPUs",
            "10000 tasks, 10000 GPUs",
        )
    },
    "200 tasks, 128 GPUs": lambda seed: problem(seed, 200, [(8, "a100")] * 16, ALL),
}
