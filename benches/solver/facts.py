"""Objectives and facts beyond plain makespans and weighted completion, beside a list heuristic.

A problem is one of `problems.CLASSES` with releases and predecessors, with prices of nodes and a
deadline for all, with owners' caps, or with soft deadlines. The list heuristic takes the tasks in
an order, which is a rule under noise: the largest first, or the earliest deadline first and then
Smith's rule. It places each task, in the gaps before earlier tasks too, where that is best for the
objective, and keeps the best of forty orders. It knows releases, predecessors and owners' caps, and
no hard deadline.
"""

from __future__ import annotations

import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from problems import CLASSES, Problem
from queues import NUM_ORDERS, Node, least_area, queued

#: The price of an hour of a node, by its type.
PRICES = {"a100": 16.0, "v100": 5.0, "h100": 30.0}
#: The deadline of all tasks, over the lower bound of the makespan.
SLACK = 1.5

Measured = Callable[..., dict[str, Any]]
Value = tuple[float, float]


def least_s(problem: Any) -> float:
    """How long the work takes if no device is ever idle."""
    gpus = sum(node["gpus"] for node in problem["cluster"]["nodes"])
    return float(sum(map(least_area, problem["tasks"])) / gpus)


def chained(seed: str) -> Problem:
    """A third of the tasks is released late, and a third waits for an earlier task."""
    problem: Any = CLASSES["100 tasks, 64 GPUs"](seed)
    rng = random.Random(f"{seed}/chained")
    span_s = least_s(problem)
    for index, task in enumerate(problem["tasks"]):
        kind = rng.randrange(3)
        if kind == 1:
            task["release_s"] = round(rng.uniform(0.0, 0.5 * span_s), 1)
        if kind == 2 and index:
            task["after"] = [problem["tasks"][rng.randrange(index)]["name"]]
    found: Problem = problem
    return found


def priced(seed: str) -> Problem:
    """Three types, each with its price."""
    problem: Any = CLASSES["100 tasks, 72 GPUs, 3 types"](seed)
    for node in problem["cluster"]["nodes"]:
        node["price_per_hour"] = PRICES[node["type"]]
    found: Problem = problem
    return found


def owned(seed: str) -> Problem:
    """A queue of five people, each of whom may hold a quarter of the GPUs at once."""
    problem: Any = queued("100 tasks, 64 GPUs", seed)
    rng = random.Random(f"{seed}/owned")
    gpus = sum(node["gpus"] for node in problem["cluster"]["nodes"])
    names = [f"person {number}" for number in range(5)]
    problem["owners"] = [{"name": name, "max_gpus": gpus // 4} for name in names]
    for task in problem["tasks"]:
        task["owner"] = rng.choice(names)
    found: Problem = problem
    return found


def wished(seed: str, most_late: float = 0.0) -> Problem:
    """A queue in which half of the tasks should end soon; a share may not be very late."""
    problem: Any = queued("100 tasks, 64 GPUs", seed, released=0.5)
    rng = random.Random(f"{seed}/wished")
    span_s = least_s(problem)
    for task in problem["tasks"]:
        if rng.random() < 0.5:
            after_s = rng.uniform(0.1, 0.7) * span_s
            task["deadline_s"] = round(task.get("release_s", 0.0) + after_s, 1)
            task["late_price"] = float(rng.randint(1, 4))
            if rng.random() < most_late:
                task["most_late_s"] = round(span_s, 1)
    found: Problem = problem
    return found


#: (problems, objective, whether there is a deadline for all, what makes a problem)
FACT_CLASSES: list[tuple[str, str, bool, Callable[[str], Problem]]] = [
    ("a third released late, a third with a predecessor", "makespan", False, chained),
    ("the same", "completion", False, chained),
    ("three types with prices", "cost", False, priced),
    (f"the same, all due at {SLACK:g} times the makespan's bound", "cost", True, priced),
    ("five people, each may hold a quarter of the GPUs", "makespan", False, owned),
    ("the same", "completion", False, owned),
]
SOFT_CLASSES: list[tuple[str, str, Callable[[str], Problem]]] = [
    ("half of the tasks with soft deadlines", "completion", wished),
    ("half of these with a most late end", "completion", lambda seed: wished(seed, 0.5)),
    ("half of the tasks with soft deadlines", "makespan", wished),
]


def in_turn(tasks: list[Any], ranks: list[float]) -> list[Any]:
    """The tasks by rank, each after the tasks that it waits for."""
    by_name = {task["name"]: task for task in tasks}
    placed: dict[str, Any] = {}

    def place(task: Any) -> None:
        for name in task.get("after", []):
            if name not in placed:
                place(by_name[name])
        placed.setdefault(task["name"], task)

    for _, task in sorted(zip(ranks, tasks, strict=True), key=lambda pair: pair[0]):
        place(task)
    return list(placed.values())


def order(problem: Any, objective: str, rng: random.Random) -> list[Any]:
    """The tasks by the objective's rule, under noise."""

    def rank(task: Any) -> float:
        noise = rng.lognormvariate(0, 0.4)
        if "late_price" in task:
            # Before all tasks without a wish.
            return float(task["deadline_s"] * noise - 1e9)
        if objective == "completion":
            return least_area(task) / float(task.get("weight", 1.0)) * noise
        return -least_area(task) * noise

    return in_turn(problem["tasks"], [rank(task) for task in problem["tasks"]])


@dataclass
class Place:
    """A place for a task on a node."""

    start_s: float
    end_s: float
    gpus: int
    number: int


def best_place(
    places: list[Place],
    objective: str,
    weight: float,
    prices: list[float],
    busy: list[list[tuple[float, float]]],
) -> Place:
    """The place that ends first or costs least, and does not take too much of the devices."""

    def badness(place: Place) -> float:
        held = weight * place.gpus * (place.end_s - place.start_s)
        if objective != "cost":
            return place.end_s + held
        # The price of the time that the node is held longer, and a share for its devices.
        before = busy[place.number]
        added_s = covered_s([*before, (place.start_s, place.end_s)]) - covered_s(before)
        return prices[place.number] * (added_s + held)

    return min(places, key=badness)


def earliest_s(node: Node, cap: Node | None, strategy: Any, ready_s: float) -> float:
    """When a gang could start on a node, and within its owner's cap."""
    gpus, runtime_s = strategy["gpus"], strategy["runtime_s"]
    while True:
        start_s = node.earliest(gpus, runtime_s, ready_s)
        ready_s = start_s if cap is None else cap.earliest(gpus, runtime_s, start_s)
        if ready_s <= start_s:
            return start_s


def list_heuristic(problem: Problem, objective: str, seed: str) -> Value:
    """The best tardiness and value that the heuristic finds."""
    data: Any = problem
    cluster = data["cluster"]["nodes"]
    num_gpus = sum(node["gpus"] for node in cluster)
    prices = [node.get("price_per_hour", 0.0) / 3600.0 for node in cluster]
    rng = random.Random(seed)
    best: Value = (float("inf"), float("inf"))
    for _ in range(NUM_ORDERS):
        nodes = [Node(node["gpus"], node["type"]) for node in cluster]
        caps = {owner["name"]: Node(owner["max_gpus"], "") for owner in data.get("owners", [])}
        weight = 10 ** rng.uniform(0.0, 2.0) / num_gpus
        ends: dict[str, float] = {}
        busy: list[list[tuple[float, float]]] = [[] for _ in nodes]
        tardiness = completion = 0.0
        for task in order(data, objective, rng):
            before = [ends[name] for name in task.get("after", [])]
            ready_s = max([task.get("release_s", 0.0), *before])
            places = []
            cap = caps.get(task.get("owner"))
            most = num_gpus if cap is None else cap.gpus
            for number, node in enumerate(nodes):
                for each in task["strategies"]:
                    if each["type"] == node.kind and each["gpus"] <= min(node.gpus, most):
                        start_s = earliest_s(node, cap, each, ready_s)
                        end_s = start_s + each["runtime_s"]
                        places.append(Place(start_s, end_s, each["gpus"], number))
            place = best_place(places, objective, weight, prices, busy)
            for calendar in [nodes[place.number], *([] if cap is None else [cap])]:
                calendar.hold(place.gpus, place.start_s, place.end_s)
            busy[place.number].append((place.start_s, place.end_s))
            ends[task["name"]] = place.end_s
            completion += task.get("weight", 1.0) * place.end_s
            if "late_price" in task:
                tardiness += task["late_price"] * max(0.0, place.end_s - task["deadline_s"])
        cost = sum(price * covered_s(spans) for price, spans in zip(prices, busy, strict=True))
        value = {"makespan": max(ends.values()), "completion": completion, "cost": cost}[objective]
        best = min(best, (tardiness, value))
    return best


def covered_s(spans: list[tuple[float, float]]) -> float:
    """The time that spans cover together."""
    total = until = 0.0
    for start_s, end_s in sorted(spans):
        total += max(0.0, end_s - max(until, start_s))
        until = max(until, end_s)
    return total


KEYS = {
    "makespan": ("makespan_s", "lower_bound_s"),
    "completion": ("completion_s", "completion_bound_s"),
    "cost": ("cost", "cost_bound"),
}


def solved(
    measured: Measured, program: Path, problem: Problem, objective: str, times: list[float]
) -> list[dict[str, Any]]:
    """The answers after each of these times."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "problem.json"
        file.write_text(json.dumps(problem))
        chosen = ("--objective", objective)
        return [measured(program, file, "auto", limit, 0, *chosen) for limit in times]


def ratios_of(
    measured: Measured,
    program: Path,
    facts: tuple[str, str, bool, Callable[[str], Problem]],
    seed: str,
    times: list[float],
) -> list[float | None]:
    """Values over the best bound after each time, and that of the list heuristic."""
    _, objective, is_due, make = facts
    problem: Any = make(seed)
    if is_due:
        [first] = solved(measured, program, problem, "makespan", [0.1])
        problem["deadline_s"] = round(SLACK * first["lower_bound_s"], 1)
    answers = solved(measured, program, problem, objective, times)
    value, bound = KEYS[objective]
    least = max(answer[bound] for answer in answers)
    found = [answer[value] / least if answer[value] else None for answer in answers]
    found.append(list_heuristic(problem, objective, seed)[1] / least)
    print(f"{objective}, {seed}: {found}", file=sys.stderr, flush=True)
    return found


def soft_row(
    measured: Measured,
    program: Path,
    facts: tuple[str, str, Callable[[str], Problem]],
    seeds: list[str],
    times: list[float],
) -> list[str]:
    """Tardiness after each time over the list heuristic's; then values over the heuristic's."""
    name, objective, make = facts
    late: list[list[float]] = [[] for _ in times]
    worth: list[list[float]] = [[] for _ in times]
    proven = []
    for seed in seeds:
        problem = make(seed)
        answers = solved(measured, program, problem, objective, times)
        tardiness, value = list_heuristic(problem, objective, seed)
        for answer, tardy, of in zip(answers, late, worth, strict=True):
            tardy.append(answer["tardiness"] / tardiness)
            of.append(answer[KEYS[objective][0]] / value)
        proven.append(answers[-1]["tardiness_bound"] / tardiness)
        told = f"{late[-1][-1]:.4f}, bound {proven[-1]:.4f}"
        print(f"{objective}, {seed}: {told}", file=sys.stderr, flush=True)
    cells = [f"{statistics.mean(one):.4f} ({max(one):.4f})" for one in (*late, proven, *worth)]
    return [name, objective, *cells]
