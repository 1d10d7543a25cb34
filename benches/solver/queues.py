"""Weighted completion: problems of a queue, and the list heuristic that Saturn is measured beside.

The figure is the sum over all tasks of weight times end. A problem is one of `problems.CLASSES`
with a weight for each task and, by its class, releases and deadlines. The list heuristic takes the
tasks in an order by Smith's rule under noise. It places each task, in the gaps before earlier tasks
too, where end plus price of the devices is least, and keeps the best of forty orders and prices. It
does not know deadlines.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from problems import CLASSES, Problem

NUM_ORDERS = 40


def queued(name: str, seed: str, *, released: float = 0.0, due: float = 0.0) -> Problem:
    """A problem with weights 1 to 4; shares of the tasks have a release and a deadline.

    Releases fall in the first half of the time that the work takes if no device is ever idle.
    A deadline is what an ample queue would keep: 1.2 to 2 times that time after the release.
    """
    problem: Any = CLASSES[name](seed)
    rng = random.Random(f"{seed}/queue")
    gpus = sum(node["gpus"] for node in problem["cluster"]["nodes"])
    least_s = sum(map(least_area, problem["tasks"])) / gpus
    for task in problem["tasks"]:
        task["weight"] = float(rng.randint(1, 4))
        if rng.random() < released:
            task["release_s"] = round(rng.uniform(0.0, 0.5 * least_s), 1)
        if rng.random() < due:
            slack_s = rng.uniform(1.2, 2.0) * least_s
            task["deadline_s"] = round(task.get("release_s", 0.0) + slack_s, 1)
    found: Problem = problem
    return found


QUEUE_CLASSES: dict[str, Callable[[str], Problem]] = {
    "100 tasks, 64 GPUs": lambda seed: queued("100 tasks, 64 GPUs", seed),
    "the same, half released late": lambda seed: queued("100 tasks, 64 GPUs", seed, released=0.5),
    "and a quarter with deadlines": lambda seed: queued(
        "100 tasks, 64 GPUs", seed, released=0.5, due=0.25
    ),
    "100 tasks, 72 GPUs, 3 types": lambda seed: queued("100 tasks, 72 GPUs, 3 types", seed),
    "1000 tasks, 1024 GPUs": lambda seed: queued("1000 tasks, 1024 GPUs", seed),
}


class Node:
    """When devices of a node are free: (time, free devices from then on), ascending."""

    def __init__(self, gpus: int, kind: str) -> None:
        self.kind = kind
        self.times = [0.0]
        self.free = [gpus]
        self.gpus = gpus

    def earliest(self, gpus: int, runtime_s: float, release_s: float) -> float:
        """The earliest start of a gang, in gaps too."""
        start, index = release_s, max(0, bisect_left(self.times, release_s + 1e-9) - 1)
        while index < len(self.times) and self.times[index] < start + runtime_s:
            if self.free[index] < gpus:
                start = self.times[index + 1]
            index += 1
        return start

    def hold(self, gpus: int, start_s: float, end_s: float) -> None:
        """Take devices."""
        for time_s in (start_s, end_s):
            index = bisect_left(self.times, time_s)
            if index == len(self.times) or self.times[index] != time_s:
                self.times.insert(index, time_s)
                self.free.insert(index, self.free[index - 1])
        for index in range(bisect_left(self.times, start_s), bisect_left(self.times, end_s)):
            self.free[index] -= gpus


def list_heuristic(problem: Problem, seed: str, num_orders: int = NUM_ORDERS) -> float:
    """The best sum of weight times end that the heuristic finds."""
    data: Any = problem
    num_gpus = sum(node["gpus"] for node in data["cluster"]["nodes"])
    rng = random.Random(seed)
    best = float("inf")
    for _ in range(num_orders):
        nodes = [Node(node["gpus"], node["type"]) for node in data["cluster"]["nodes"]]
        price = 10 ** rng.uniform(0.0, 2.0) / num_gpus
        ranks = [
            least_area(task) / task["weight"] * rng.lognormvariate(0, 0.4) for task in data["tasks"]
        ]
        total = 0.0
        for _, task in sorted(zip(ranks, data["tasks"], strict=True), key=lambda pair: pair[0]):
            places = [
                (start_s + each["runtime_s"], each["gpus"], start_s, number)
                for number, node in enumerate(nodes)
                for each in task["strategies"]
                if each["type"] == node.kind and each["gpus"] <= node.gpus
                for start_s in [
                    node.earliest(each["gpus"], each["runtime_s"], task.get("release_s", 0.0))
                ]
            ]
            end_s, gpus, start_s, number = min(
                places, key=lambda place: place[0] + price * place[1] * (place[0] - place[2])
            )
            nodes[number].hold(gpus, start_s, end_s)
            total += task["weight"] * end_s
        best = min(best, total)
    return best


def least_area(task: Any) -> float:
    """The least GPU-seconds of a task."""
    return float(min(each["gpus"] * each["runtime_s"] for each in task["strategies"]))
