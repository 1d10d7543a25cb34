"""Which evaluation of a task is its best."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from in_process import gang_of_one
from models import definition
from saturn.training.evaluation import Outcome
from saturn.worker.evaluations import Evaluations


class Told:
    """An evaluator whose metrics are told beforehand."""

    def __init__(self, *values: float) -> None:
        self._values = iter(values)

    def run(self) -> Outcome:
        return Outcome({"a": next(self._values)}, 1.0)


def evaluations(directory: Path, best: tuple[str, str] | None, *values: float) -> Any:
    notes: list[str] = []
    with gang_of_one(directory) as gang:
        task = definition(evaluate=lambda model: {}, evaluate_every=4, best=best)
        made = Evaluations(task, gang, Told(*values), 10, notes.append)  # type: ignore[arg-type]
        return made, notes


@pytest.mark.parametrize(
    ("which", "values", "step"),
    [("min", (3.0, 1.0, 2.0), 8), ("max", (3.0, 5.0, 5.0), 8), ("max", (1.0, 2.0, 3.0), 10)],
)
def test_the_best_is_the_first_of_the_best(
    tmp_path: Path, which: str, values: tuple[float, ...], step: int
) -> None:
    made, _ = evaluations(tmp_path, ("a", which), *values)
    assert [number for number in range(1, 11) if made.is_due(number)] == [4, 8, 10]
    for number in (4, 8, 10):
        made.evaluate(number, 1.0)
        assert not made.is_due(number)
    assert made.is_best(step) and made.message(1.0)["best"]["step"] == step
    assert made.state()["last"]["step"] == 10
    again, _ = evaluations(tmp_path, ("a", which))
    again.restore(made.state())
    assert again.is_best(step) and not again.is_due(10)


def test_what_is_no_number_is_pointed_out_once_and_never_the_best(tmp_path: Path) -> None:
    made, notes = evaluations(tmp_path, ("a", "min"), float("nan"), 2.0, float("inf"))
    for number in (4, 8, 10):
        made.evaluate(number, 1.0)
    assert notes == ["the metric `a` is nan at step 4, and can't be the best"]
    assert made.is_best(8) and made.state()["last"]["metrics"] == {"a": "inf"}


def test_a_model_that_diverged_is_never_the_best(tmp_path: Path) -> None:
    made, _ = evaluations(tmp_path, ("a", "min"), 3.0, 1.0, 2.0)
    for number, loss in ((4, 0.5), (8, float("nan")), (10, float("inf"))):
        made.evaluate(number, loss)
    assert made.is_best(4) and made.message(1.0)["best"]["step"] == 4


def test_one_whose_checkpoint_was_not_written_is_not_the_best(tmp_path: Path) -> None:
    made, _ = evaluations(tmp_path, ("a", "min"), 3.0, 1.0, 2.0)
    made.evaluate(4, 1.0)
    made.evaluate(8, 1.0)
    made.not_saved(8)
    assert made.is_best(4)
    made.evaluate(10, 1.0)
    assert made.is_best(10)
