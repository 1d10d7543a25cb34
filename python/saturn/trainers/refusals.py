"""Which trainers Saturn must refuse, for reasons other than arguments (see `arguments`).

An accepted trainer is trained exactly as it would have trained. Anything that can't be kept is
refused by name, with the reason, before anything is measured.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from saturn.trainers import arguments
from saturn.trainers.arguments import text_of

#: Methods whose override changes what `train` does, in ways that Saturn can't follow.
_OWN_LOOP = {
    "training_step": "Saturn takes the backward itself; put what it computes into `compute_loss`",
    "train": "Saturn runs a loop of its own",
    "_inner_training_loop": "Saturn runs a loop of its own",
    "_run_epoch": "Saturn runs a loop of its own",
    "_prepare_for_training": "Saturn runs a loop of its own",
    "_init_training_state": "Saturn runs a loop of its own",
    "_finalize_training": "Saturn runs a loop of its own",
    "_maybe_log_save_evaluate": "Saturn decides what is done after a step; put what it logs into "
    "`log`, or into a callback",
    "_prepare_inputs": "it makes a step's batches with the model at work, which other plans would "
    "not make alike",
    "_prepare_input": "Saturn moves batches itself",
    "get_batch_samples": "Saturn fetches a step's batches itself",
    "set_initial_training_values": "Saturn counts steps itself",
    "_wrap_model": "Saturn spreads the model itself",
    "_clip_grad_norm": "Saturn clips gradients itself, over all devices",
    "create_accelerator_and_postprocess": "Saturn places the model itself",
}
#: The same for `evaluate`.
_OWN_EVALUATION = ("evaluate", "evaluation_loop", "_evaluate")
_OR_ANOTHER = "or give `Task.from_trainer(…, evaluate=…)` another evaluation"
#: Methods by which `train` writes and reads files. Saturn has files of its own, and calls no such
#: method. They change no weights, so an override is no reason to refuse a trainer.
_OWN_FILES = (
    *("save_model", "_save", "_save_checkpoint", "_save_optimizer_and_scheduler"),
    *("_load_from_checkpoint", "_load_best_model"),
)
#: TRL's own overrides of this method only offload activations.
_TRL_STEP = "training_step"


def reasons_against(trainer: Any, *, evaluates: bool) -> Iterator[str]:
    """Why Saturn can't train as `trainer` would, each as a clause that names its subject.

    `evaluates` says whether the task uses the trainer's evaluation, if it has one.
    """
    yield from _against_state(trainer)
    is_evaluated = evaluates and text_of(trainer.args.eval_strategy) != "no"
    yield from arguments.reasons_against(trainer.args, evaluates=is_evaluated)
    if getattr(trainer.args, "sync_ref_model", False):
        yield "`sync_ref_model`: it changes the reference model between steps, by a callback"
    yield from _against_class(type(trainer))
    yield from _against_callbacks(trainer, evaluates=evaluates)
    if evaluates:
        yield from _against_evaluation(trainer)


def _against_state(trainer: Any) -> Iterator[str]:
    has_state = trainer.optimizer is not None and bool(trainer.optimizer.state)
    if trainer.state.global_step > 0 or has_state:
        yield "it has been run already; make_trainer must return a fresh one"
    dataset = trainer.train_dataset
    if dataset is None:
        yield "it has no `train_dataset`"
    elif not hasattr(dataset, "__len__") or not hasattr(dataset, "__getitem__"):
        yield (
            "its `train_dataset` is a stream, whose epochs can't be counted or cut before they "
            "are read; give it a dataset with a length"
        )
    if getattr(trainer.model, "hf_device_map", None):
        yield "its model has a `device_map`; Saturn places it"
    if getattr(trainer.model, "is_quantized", False):
        yield "its model is quantized, and techniques can't move or split such weights"


def _against_class(cls: type[Any]) -> Iterator[str]:
    for name, reason in _OWN_LOOP.items():
        owner = owner_of(cls, name)
        if owner is None or is_of(owner, "transformers"):
            continue
        if name == _TRL_STEP and is_of(owner, "trl"):
            continue
        yield f"{owner.__name__} overrides `{name}`: {reason}"


def _against_callbacks(trainer: Any, *, evaluates: bool) -> Iterator[str]:
    from transformers import EarlyStoppingCallback

    args = trainer.args
    if not any(
        isinstance(one, EarlyStoppingCallback) for one in trainer.callback_handler.callbacks
    ):
        return
    if not evaluates:
        yield (
            "`EarlyStoppingCallback` follows the trainer's own evaluation, and the task has "
            "another or none; leave the callback out, and give "
            "`orchestrate(…, stopper=saturn.stoppers.Plateau(…))`; it copies nothing to `save_dir`"
        )
    elif text_of(args.eval_strategy) == "no" or args.metric_for_best_model is None:
        yield "`EarlyStoppingCallback` needs `eval_strategy` and `metric_for_best_model`"


def _against_evaluation(trainer: Any) -> Iterator[str]:
    args = trainer.args
    if text_of(args.eval_strategy) == "no":
        if args.load_best_model_at_end:
            yield "`load_best_model_at_end`: nothing is evaluated, as `eval_strategy` is `no`"
        return
    if isinstance(trainer.eval_dataset, dict):
        yield f"`eval_dataset` is a dict, and a task has one evaluation: name one, {_OR_ANOTHER}"
    if getattr(args, "predict_with_generate", False):
        yield f"`predict_with_generate`: Saturn's evaluation predicts once; leave it, {_OR_ANOTHER}"
    for name in _OWN_EVALUATION:
        if (owner := users_owner_of(type(trainer), name)) is not None:
            yield f"{owner.__name__} overrides `{name}`: Saturn evaluates itself; {_OR_ANOTHER}"


def notes_on(cls: type[Any]) -> Iterator[str]:
    """Notes for the user on overrides that are never called, of a trainer that is not refused."""
    for name in _OWN_FILES:
        if (owner := users_owner_of(cls, name)) is not None:
            yield (
                f"{owner.__name__} overrides `{name}`, which Saturn does not call: it writes "
                "checkpoints and the model in its own way (`save_dir`, `saturn.export`)"
            )


def users_owner_of(cls: type[Any], name: str) -> type[Any] | None:
    """The class whose method `name` a trainer of `cls` has; None if a library defines it."""
    owner = owner_of(cls, name)
    if owner is None or is_of(owner, "transformers") or is_of(owner, "trl"):
        return None
    return owner


def owner_of(cls: type[Any], name: str) -> type[Any] | None:
    """The class that defines the method `name` of `cls`; None if there is none."""
    return next((each for each in cls.__mro__ if name in vars(each)), None)


def is_of(thing: Any, package: str) -> bool:
    """Whether a class, or a function, is defined in a package."""
    return str(thing.__module__).partition(".")[0] == package
