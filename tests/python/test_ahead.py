"""Searches whose idle devices train held tasks ahead, step by step on made-up curves: no run."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest
from saturn.stoppers import ASHA, GO_ON, HOLD, Progress, Ruling
from saturn.stoppers.given import Reports, stoppers_of, with_metrics
from saturn.stoppers.progress import ENDED, HELD, TRAINING, WAITING
from saturn.stoppers.stopper import AHEAD
from saturn.tuning.tuner import Stopping


@dataclass(frozen=True)
class Ended:
    """How a search ended: after how many ticks, and the best value of the tasks that are done."""

    end: int
    best: float


class Pool:
    """Tasks on devices, one step a tick; held tasks that go on come before tasks that are new."""

    def __init__(self, tasks: int, devices: int, eta: int, steps: int, seed: int) -> None:
        rng = random.Random(seed)
        names = [f"t{number}" for number in range(tasks)]
        (one,) = stoppers_of(ASHA(eta=eta))
        about = Reports(name="t0", only_loss=True, best=("loss", "min"), evaluates=True)
        self.tuner = Stopping(with_metrics([one], [about]))
        self.tasks = {name: Progress(name) for name in names}
        for task in self.tasks.values():
            task.steps, task.stage = steps, WAITING
        self.free = devices
        self.level = {name: rng.random() for name in names}
        self.speed = {name: rng.uniform(0.5, 2.0) for name in names}

    def value(self, name: str, step: int) -> float:
        """Curves fall at several speeds, so the best at a rung may not be the best in the end."""
        return self.level[name] + 2.0 / (1.0 + self.speed[name] * step)

    def take(self, said: list[Ruling]) -> None:
        for one in said:
            task = self.tasks[one.task]
            if task.stage == ENDED:
                continue
            task.train_ahead(one.ruling == GO_ON and one.reason == AHEAD)
            if task.stage == TRAINING and one.ruling != GO_ON:
                self.free += 1
            task.stage = {GO_ON: WAITING, HOLD: HELD}.get(one.ruling, ENDED)
            if task.stage == ENDED:
                task.end = "stopped"

    def waiting(self) -> list[Progress]:
        ready = [task for task in self.tasks.values() if task.stage == WAITING]
        return sorted(ready, key=lambda task: task.step == 0)

    def start(self) -> None:
        for task in self.waiting()[: self.free]:
            task.stage = TRAINING
            self.free -= 1

    def run(self, *, ahead: bool) -> Ended:
        tick = 0
        while any(task.stage != ENDED for task in self.tasks.values()):
            self.start()
            if not any(task.stage == TRAINING for task in self.tasks.values()):
                self.take(list(self.tuner.at_rest(self.tasks)))
                continue
            tick += 1
            for task in [one for one in self.tasks.values() if one.stage == TRAINING]:
                if task.stage != TRAINING:
                    continue  # held meanwhile
                step = task.step + 1
                task.add(step, {"loss": self.value(task.name, step)})
                self.take(list(self.tuner.looked(task, self.tasks)))
                if step == task.steps and task.stage == TRAINING:
                    task.stage, task.end = ENDED, "done"
                    self.free += 1
            self.take(list(self.tuner.at(float(tick), self.tasks)))
            self.start()
            if ahead and self.waiting():
                self.take(list(self.tuner.crowded(self.tasks)))
            elif ahead and self.free > 0:
                self.take(list(self.tuner.idle(self.tasks)))
        done = [task for task in self.tasks.values() if task.end == "done"]
        best = min(self.value(task.name, task.step) for task in done)
        return Ended(tick, best)


@pytest.mark.parametrize(
    ("tasks", "devices", "eta", "steps"),
    [(9, 4, 3, 81), (12, 4, 3, 81), (16, 4, 2, 64), (27, 4, 3, 81)],
)
def test_a_search_lasts_longer_for_training_ahead_only_where_that_finds_a_better_model(
    tasks: int, devices: int, eta: int, steps: int
) -> None:
    """Before, tasks that came to a rung ahead let more tasks go on: 1.8 times as long, in each."""
    later_for_nothing, plain_ticks, ahead_ticks = 0, 0, 0
    for seed in range(40):
        plain = Pool(tasks, devices, eta, steps, seed).run(ahead=False)
        ahead = Pool(tasks, devices, eta, steps, seed).run(ahead=True)
        assert ahead.best <= plain.best, seed
        later_for_nothing += ahead.end > plain.end and ahead.best == plain.best
        plain_ticks, ahead_ticks = plain_ticks + plain.end, ahead_ticks + ahead.end
    # A task that trained ahead may have been among the best, and still not be the best in the end.
    assert later_for_nothing <= 2
    assert ahead_ticks <= 1.15 * plain_ticks
