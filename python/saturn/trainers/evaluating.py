"""A trainer's evaluation as a task's: its batches, what is kept of each, and its metrics.

The trainer's own `prediction_step` predicts, so the numbers are those of `Trainer.evaluate`. If
`prediction_step` and `compute_loss` are transformers' own, the technique calls the model first, and
batches are dealt to the devices. Otherwise these methods get the model itself, and every device
evaluates all batches.

When the task is evaluated is the business of `worker.evaluations`, and who hears of it that of
`callbacks`.
"""

from __future__ import annotations

import copy
import importlib
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from saturn.data import nested
from saturn.tasks.evaluation import EVAL_LOSS, MAX, MIN, Evaluate, Evaluation
from saturn.trainers.refusals import is_of
from saturn.training.evaluation_rows import joined, on_host

if TYPE_CHECKING:
    from saturn.trainers.source import TrainerSource

_PREFIX = "eval_"


@dataclass(frozen=True)
class EvaluationReading:
    """How a trainer evaluates."""

    every: int  # steps
    best: tuple[str, str] | None
    #: Whether the training ends with the best weights.
    loads_best: bool
    #: Whether the technique may call the model, and the trainer then sees only the outputs.
    goes_by_outputs: bool
    #: The facts that decide how long an evaluation takes.
    performs_as: Any


def read(trainer: Any, *, steps: int, an_epoch: int) -> EvaluationReading | None:
    """How a trainer evaluates; None if it doesn't. `steps` and `an_epoch` count steps."""
    args = trainer.args
    strategy = getattr(args.eval_strategy, "value", args.eval_strategy)
    if strategy == "no":
        return None
    every = an_epoch
    if strategy == "steps":
        # As in the trainer's state: a number below 1 is a part of all steps.
        every = int(args.eval_steps if args.eval_steps >= 1 else math.ceil(steps * args.eval_steps))
    best = None
    if (name := args.metric_for_best_model) is not None:
        named = name if name.startswith(_PREFIX) else _PREFIX + name
        best = named, MAX if args.greater_is_better else MIN
    data = trainer.eval_dataset
    performs_as = {
        # By name, because their content may be anything, and each `make_trainer` makes it anew.
        "metrics": (
            _name(trainer.compute_metrics),
            _name(trainer.preprocess_logits_for_metrics),
        ),
        "data": (type(data), len(data) if hasattr(data, "__len__") else None),
        "batch": args.per_device_eval_batch_size,
        "keeps": (bool(args.prediction_loss_only), sorted(args.include_for_metrics)),
    }
    methods = (type(trainer).compute_loss, type(trainer).prediction_step)
    by_outputs = all(is_of(method, "transformers") for method in methods)
    return EvaluationReading(
        every, best, bool(args.load_best_model_at_end), by_outputs, performs_as
    )


def evaluate_of(source: TrainerSource, reading: EvaluationReading) -> Evaluate:
    """The task's `evaluate`, for a trainer that evaluates so."""
    of_trainer = TrainerEvaluation(source)
    if not reading.goes_by_outputs:
        return of_trainer.by_model
    return Evaluation(source.get_eval_dataloader, of_trainer.metrics, of_trainer.keep, loss=False)


class TrainerEvaluation:
    """The functions of a task's evaluation, if its trainer evaluates."""

    def __init__(self, source: TrainerSource) -> None:
        """`source` makes the trainer when it is needed."""
        self._source = source

    def by_model(self, model: nn.Module) -> dict[str, float]:
        """The metrics over all batches, each predicted with `model`."""
        loader = self._source.get_eval_dataloader()
        return self.metrics(*joined([on_host(self._predicted(model, batch)) for batch in loader]))

    def keep(self, outputs: Any, batch: Any) -> tuple[Any, ...]:
        """The kept values of a batch for which the model returned `outputs`."""
        return self._predicted(lambda *args, **kwargs: outputs, batch)

    def metrics(
        self, losses: Any, rows: Tensor, logits: Any, labels: Any, inputs: Any
    ) -> dict[str, float]:
        """The metrics of the kept values of all batches, under the trainer's names.

        Of the results of `compute_metrics`, only numbers count.
        """
        import numpy
        from transformers import EvalPrediction

        utils: Any = importlib.import_module("transformers.trainer_utils")
        numpify: Any = importlib.import_module("transformers.trainer_pt_utils").nested_numpify
        trainer = self._source.trainer
        of_rows = None if _is_none(losses) else numpy.repeat(losses.float().numpy(), rows.numpy())
        found: dict[str, Any] = {}
        if trainer.compute_metrics is not None and not (_is_none(logits) or _is_none(labels)):
            wanted = trainer.args.include_for_metrics
            prediction = EvalPrediction(
                predictions=numpify(logits),
                label_ids=numpify(labels),
                inputs=numpify(inputs) if "inputs" in wanted else None,
                losses=of_rows if "loss" in wanted else None,
            )
            found = utils.denumpify_detensorize(trainer.compute_metrics(prediction))
        if of_rows is not None:
            finite = numpy.isfinite(of_rows)
            if trainer.args.logging_nan_inf_filter and finite.any():
                of_rows = of_rows[finite]
            found = {**found, EVAL_LOSS: of_rows.mean().item()}
        return {
            name if name.startswith(_PREFIX) else _PREFIX + name: float(value)
            for name, value in found.items()
            if isinstance(value, int | float)
        }

    def _predicted(self, model: Any, batch: Any) -> tuple[Any, ...]:
        """Loss, rows, logits, labels and inputs of a batch; None for those that nobody needs."""
        trainer = self._source.trainer
        args = trainer.args
        loss_only = trainer.compute_metrics is None or args.prediction_loss_only
        # A copy, because the trainer removes entries from the batch.
        loss, logits, labels = trainer.prediction_step(model, copy.copy(batch), loss_only)
        if logits is not None and trainer.preprocess_logits_for_metrics is not None:
            logits = trainer.preprocess_logits_for_metrics(logits, labels)
        inputs = None
        if "inputs" in args.include_for_metrics:
            inputs = batch[getattr(trainer.model, "main_input_name", "input_ids")]
        self._source.forget_metrics()
        return _reduced(loss), nested.num_samples(batch) or 1, logits, labels, inputs


def _reduced(loss: Any) -> Any:
    return loss.detach().mean() if isinstance(loss, torch.Tensor) else loss


def _name(function: Any) -> str | None:
    if function is None:
        return None
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def _is_none(kept: Any) -> bool:
    """Whether joined values contain nothing but None."""
    return isinstance(kept, list) and all(each is None for each in kept)
