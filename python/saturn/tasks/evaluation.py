"""A user's description of a task's evaluation: what is measured, how often, and which is best.

It is checked here as far as possible without a model. How an evaluation is run is in
`training.evaluation`; when it is run is in `worker.evaluations`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from saturn.errors import InvalidInput

#: The metric that Saturn computes itself: the mean of the task's loss.
EVAL_LOSS = "eval_loss"
#: Whether the smallest or the largest value of a metric is the best.
MIN, MAX = "min", "max"


@dataclass(frozen=True)
class Evaluation:
    """A loader, and what is measured on its batches.

    Batches are dealt whole to the devices. Metrics are computed once, over all rows in the loader's
    order, so they are the same on any number of devices.

    Args:
        get_dataloader: returns a `DataLoader`, or an iterable of batches like those that the task
            trains on. Each evaluation reads it once, in the same order.
        metrics: called once an evaluation, with the results of `keep` for all batches joined;
            without `keep` as `metrics(outputs, labels)`. Returns a mapping of names to
            numbers. None: only `eval_loss` is measured.
        keep: `keep(outputs, labels)` → the values of a batch that `metrics` needs, such as
            `(outputs.argmax(-1), labels)`. For batches that are mappings, `keep(outputs, batch)`.
            A tuple becomes several arguments. By default the outputs (their `logits`, if they have
            any) and the labels, or the batch.
        loss: whether `eval_loss` is measured too: the mean of the task's loss over the batches,
            weighted by their rows, or by the task's `loss_weight`.
        batches: how many batches of the loader are read at most; all by default.
    """

    get_dataloader: Callable[[], Any]
    metrics: Callable[..., Any] | None = None
    keep: Callable[..., Any] | None = None
    loss: bool = True
    batches: int | None = None

    def __post_init__(self) -> None:
        """Check the fields; raises `TypeError` or `ValueError`."""
        for field in ("get_dataloader", "metrics", "keep"):
            value = getattr(self, field)
            if not callable(value) and (value is not None or field == "get_dataloader"):
                raise TypeError(
                    f"{field} of an Evaluation is a {type(value).__name__}; it must be a function"
                )
        if self.keep is not None and self.metrics is None:
            raise ValueError(
                "an Evaluation with keep needs metrics: the function that gets what keep returned"
            )
        if not self.loss and self.metrics is None:
            raise ValueError(
                "an Evaluation with loss=False and without metrics measures nothing; give metrics"
            )
        if self.batches is not None:
            _check_count("batches of an Evaluation", self.batches)


#: A function of the model, or a loader with metrics.
Evaluate = Evaluation | Callable[[Any], Any]


@dataclass(frozen=True)
class Wanted:
    """A task's evaluation, checked."""

    evaluate: Evaluate | None
    every: int | None
    best: tuple[str, str] | None


def check_caller(evaluate: Evaluate | None, caller: str) -> None:
    """Raise `InvalidInput` if Saturn would call a model that only `caller` can call."""
    if isinstance(evaluate, Evaluation):
        raise InvalidInput(
            f"evaluate is a saturn.Evaluation: Saturn calls the model, but {caller} calls "
            "the model by itself; give evaluate a function of the model that returns the metrics"
        )


def checked(evaluate: Any, every: int | None, best: Any) -> Wanted:
    """Check a task's three arguments on evaluation; raises `TypeError` or `ValueError`."""
    if isinstance(evaluate, tuple):
        if len(evaluate) != 2:
            raise ValueError(
                f"evaluate is a tuple of {len(evaluate)}; it must be the pair (get_dataloader, "
                "metrics), or saturn.Evaluation(get_dataloader, …)"
            )
        evaluate = Evaluation(*evaluate)
    if evaluate is None:
        for field, value in (("evaluate_every", every), ("best", best)):
            if value is not None:
                raise ValueError(
                    f"{field} is given without evaluate; say what to evaluate, or leave {field} out"
                )
    elif not isinstance(evaluate, Evaluation) and not callable(evaluate):
        raise TypeError(
            f"evaluate is a {type(evaluate).__name__}; it must be a function of the model, "
            "saturn.Evaluation(get_dataloader, …), or the pair (get_dataloader, metrics)"
        )
    if every is not None:
        _check_count("evaluate_every", every)
    return Wanted(evaluate, every, None if best is None else _checked_best(best, evaluate))


def _checked_best(best: Any, evaluate: Any) -> tuple[str, str]:
    if (
        not isinstance(best, tuple | list)
        or len(best) != 2
        or not isinstance(best[0], str)
        or best[1] not in (MIN, MAX)
    ):
        raise ValueError(
            f"best is {best!r}; it must be a metric's name and `min` or `max`, such as "
            '("eval_loss", "min")'
        )
    measures_loss_alone = isinstance(evaluate, Evaluation) and evaluate.metrics is None
    if measures_loss_alone and best[0] != EVAL_LOSS:
        raise ValueError(
            f"best names the metric `{best[0]}`, and an Evaluation without metrics reports only "
            "`eval_loss`; name that, or give metrics"
        )
    return best[0], best[1]


def _check_count(field: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be a whole number")
    if value < 1:
        raise ValueError(f"{field} is {value}; it must be at least 1")
