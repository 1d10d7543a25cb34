"""How a case becomes a task, and what an outside reference trains in its place."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pair_models as models
import pair_trl
import torch
from pairs import Case
from saturn import Evaluation, HParams, Task

#: By step, the number of data-parallel ranks that train it.
RanksAt = Callable[[int], int]


@dataclass
class Expected:
    """What the reference found, up to the step at which it failed, if it did."""

    losses: dict[int, float] = field(default_factory=dict)
    evaluations: dict[int, dict[str, float]] = field(default_factory=dict)
    error: str | None = None
    weights: dict[str, torch.Tensor] = field(default_factory=dict)


def task_of(case: Case, name: str = "task") -> Task:
    """The task of a managed case."""
    evaluation: dict[str, Any] = {}
    if case.has("evaluated", "best kept"):
        evaluated = Evaluation(models.get_eval_dataloader, models.accuracy)
        evaluation = {"evaluate": evaluated, "evaluate_every": models.EVERY}
    if case.has("best kept"):
        evaluation["best"] = ("eval_loss", "min")
    hparams = HParams(
        lr=models.lr_of(case),
        batch_count=models.STEPS * models.accumulate_of(case),
        optimizer_cls=models.optimizer_of,
        lr_scheduler=models.schedule_of(case),
        gradient_accumulation_steps=models.accumulate_of(case),
        max_grad_norm=models.norm_of(case),
        precision=case["precision"],
    )
    return Task(
        partial(models.get_model, case),
        partial(models.get_dataloader, case),
        torch.nn.functional.cross_entropy,
        hparams,
        name=name,
        seed=models.SEED,
        **evaluation,
    )


def expected(case: Case, ranks_at: RanksAt = lambda step: 1) -> Expected:
    """What plain torch finds in place of a managed task."""
    found, loop = Expected(), models.Loop(case)
    for step in range(1, models.STEPS + 1):
        try:
            found.losses[step] = loop.step(ranks_at(step))
        except ValueError as error:
            found.error = str(error)
            break
        due = step % models.EVERY == 0 or step == models.STEPS
        if due and not case.has("not evaluated"):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                found.evaluations[step] = loop.evaluate()
    found.weights = {name: value.clone() for name, value in loop.model.state_dict().items()}
    return found


class Samples(torch.utils.data.Dataset[Any]):
    """A data set's rows by the names of a model's arguments."""

    def __init__(self, case: Case | None, size: int) -> None:
        self.rows, self.size = models.Rows(case), size

    def __getitem__(self, index: int) -> dict[str, Any]:
        inputs, label = self.rows[index]
        return {"inputs": inputs, "labels": label}

    def __len__(self) -> int:
        return self.size


def arguments_of(case: Case) -> dict[str, Any]:
    """The arguments of a Trainer, transformers' own or TRL's."""
    schedules = {"constant": "constant", "one cycle": "cosine", "by lambda": "linear"}
    options: dict[str, Any] = {}
    if not case.has("not evaluated"):
        options |= {"eval_strategy": "steps", "eval_steps": models.EVERY}
    if case.has("best kept"):
        options |= {"metric_for_best_model": "eval_loss", "greater_is_better": False}
    return {
        "output_dir": "trainer-output",
        "max_steps": models.STEPS,
        "per_device_train_batch_size": models.BATCH,
        "per_device_eval_batch_size": 16,
        "gradient_accumulation_steps": models.accumulate_of(case),
        "learning_rate": models.lr_of(case),
        "optim": "sgd",
        "max_grad_norm": models.norm_of(case) or 0.0,
        "lr_scheduler_type": schedules[case["schedule"]],
        "bf16": case.has("bf16"),
        "train_sampling_strategy": "random" if case.has("shuffled") else "sequential",
        "dataloader_drop_last": not case.has("short last batch"),
        "dataloader_pin_memory": False,
        "logging_steps": 1,
        "logging_nan_inf_filter": False,
        "save_strategy": "no",
        "disable_tqdm": True,
        "use_cpu": True,
        **options,
    }


def trainer_of(case: Case) -> Any:
    """The Trainer of a case, transformers' own or TRL's."""
    if case.has("trl"):
        return pair_trl.trainer_of(case, arguments_of(case))
    from transformers import Trainer, TrainingArguments

    evaluates = not case.has("not evaluated")
    return Trainer(
        models.with_adapters(case, models.WithLoss(case)),
        TrainingArguments(**arguments_of(case)),
        train_dataset=Samples(case, models.SAMPLES),
        eval_dataset=Samples(None, models.SAMPLES) if evaluates else None,
        compute_metrics=accuracy_of if evaluates else None,
    )


def accuracy_of(prediction: Any) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(-1) == prediction.label_ids).mean())}


def expected_of_trainer(case: Case) -> Expected:
    """What the trainer's own `train()` finds."""
    from transformers import TrainerCallback

    found = Expected()

    class Listener(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if "loss" in logs:
                found.losses[state.global_step] = float(logs["loss"])

        def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any, **_: Any) -> None:
            names = ("eval_loss", "eval_accuracy")
            found.evaluations[state.global_step] = {name: metrics[name] for name in names}

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = trainer_of(case)
        made.add_callback(Listener())
        try:
            made.train()
            if not case.has("not evaluated"):
                made.evaluate()
        except ValueError as error:
            found.error = str(error)
    found.weights = {name: value.clone() for name, value in made.model.state_dict().items()}
    return found
