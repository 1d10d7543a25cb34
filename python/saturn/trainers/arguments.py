"""Every argument of `TrainingArguments`: honoured, irrelevant or refused, and why.

There is one table. `refusals` refuses by it, `reading` puts timed arguments into the profile key,
and `python -m saturn.trainers.arguments` prints the page `docs/trainer-arguments.md` from it. An
argument that is not in the table (of a later version) must have its default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any

HONOURED, IRRELEVANT, REFUSED = "honoured", "irrelevant", "refused"


@dataclasses.dataclass(frozen=True)
class Argument:
    """How Saturn treats one argument."""

    #: `HONOURED`, `IRRELEVANT` or `REFUSED`: a refused argument must have its default.
    verdict: str
    #: How it is honoured, or why it is irrelevant or refused: a clause.
    why: str
    #: Whether it may change a step's time or memory.
    is_timed: bool = False
    #: Whether it is refused only if the task uses the trainer's evaluation.
    of_evaluation: bool = False


_LAUNCHES = "it names a launcher; Saturn plans the parallelism and the number of devices"
_OR_ANOTHER = "leave it out, or give `Task.from_trainer(…, evaluate=…)` another evaluation"
_BY_TRACKERS = "for the callbacks that `report_to` names, which read it themselves"
_KNOB = "a knob of techniques, which trials choose"
_SAVES = "Saturn saves at its own times, and resumes by itself"
_ONE_PROCESS = "about several processes of a launcher; Saturn starts its own"
_OF_SHUFFLE = "the order of samples is the trainer's"
_LOADS = "batches are loaded as the trainer's loader would"

#: Groups of honoured arguments: how they are honoured, and their names.
_HONOURED: list[tuple[str, str]] = [
    ("how long it trains", "max_steps num_train_epochs"),
    ("the optimizer is the trainer's", "learning_rate optim_args weight_decay"),
    ("the optimizer is the trainer's", "adam_beta1 adam_beta2 adam_epsilon"),
    ("the scheduler is the trainer's", "lr_scheduler_type lr_scheduler_kwargs warmup_steps"),
    ("gradients are clipped over all devices", "max_grad_norm"),
    ("the loss is the trainer's", "label_smoothing_factor neftune_noise_alpha"),
    (_OF_SHUFFLE, "seed data_seed"),
    ("only `use_seedable_sampler`; others are about several processes", "accelerator_config"),
    ("the task's evaluation is the trainer's", "eval_strategy eval_steps prediction_loss_only"),
    ("the task's evaluation is the trainer's", "per_device_eval_batch_size include_for_metrics"),
    ("it says which checkpoint is the best", "metric_for_best_model greater_is_better"),
    ("`save_dir` and the hub get the best model", "load_best_model_at_end"),
    ("for `eval_loss`; losses of steps are reported unfiltered", "logging_nan_inf_filter"),
    ("callbacks get logs as often", "logging_strategy logging_steps logging_first_step"),
    ("its callbacks are called", "report_to"),
    ("the trained model is pushed once, at the end", "push_to_hub hub_model_id hub_token"),
    ("the trained model is pushed once, at the end", "hub_private_repo hub_revision hub_strategy"),
    ("files for the hub go there; other files go to the run's directory", "output_dir"),
    ("a seed for workers is drawn when the trainer draws it", "dataloader_persistent_workers"),
]
#: The same, for arguments that may change a step's time.
_TIMED: list[tuple[str, str]] = [
    ("the global batch is its product with accumulation", "per_device_train_batch_size"),
    ("batches of a step", "gradient_accumulation_steps"),
    (_LOADS, "dataloader_drop_last dataloader_num_workers dataloader_prefetch_factor"),
    (_LOADS, "dataloader_multiprocessing_context remove_unused_columns"),
    (_OF_SHUFFLE, "train_sampling_strategy length_column_name"),
    ("the optimizer is the trainer's", "optim optim_target_modules"),
    ("autocast around the forward", "bf16"),
    ("TensorFloat-32 on GPUs that have it", "tf32"),
    ("which parts of a batch are labels", "label_names"),
    ("set in the model's configuration", "use_cache"),
]
_IRRELEVANT: list[tuple[str, str]] = [
    (_SAVES, "save_strategy save_steps save_total_limit save_only_model save_on_each_node"),
    (_SAVES, "enable_jit_checkpoint ignore_data_skip"),
    ("always done when a task goes on", "restore_callback_states_from_checkpoint"),
    ("the model is pushed only once", "hub_always_push"),
    ("items of a step are always counted over all devices", "average_tokens_across_devices"),
    ("Saturn shows progress itself", "disable_tqdm log_level log_level_replica"),
    ("Saturn counts samples and tokens itself", "include_num_input_tokens_seen"),
    ("Saturn measures memory itself", "skip_memory_metrics"),
    (_BY_TRACKERS, "run_name project trackio_space_id trackio_bucket_id trackio_static_space_id"),
    (_KNOB, "activation_checkpointing activation_checkpointing_kwargs"),
    (_KNOB, "gradient_checkpointing gradient_checkpointing_kwargs"),
    (_KNOB, "torch_compile torch_compile_backend torch_compile_mode"),
    ("Saturn places the model and its batches", "use_cpu dataloader_pin_memory"),
    ("batches always come in order", "dataloader_in_order"),
    ("Saturn manages memory itself", "torch_empty_cache_steps eval_accumulation_steps"),
    ("`train()` ignores it in evaluations during training", "bf16_full_eval fp16_full_eval"),
    (_ONE_PROCESS, "ddp_find_unused_parameters ddp_bucket_cap_mb ddp_broadcast_buffers"),
    (_ONE_PROCESS, "ddp_static_graph ddp_backend ddp_timeout local_rank log_on_each_node"),
    (_ONE_PROCESS, "eval_use_gather_object"),
    ("for scripts, which read it themselves", "do_train do_eval do_predict"),
    ("it only serves refused arguments", "fsdp_config liger_kernel_config"),
]
_REFUSED: list[tuple[str, str]] = [
    (_LAUNCHES, "fsdp deepspeed parallelism_config"),
    (
        "the batch belongs to the task, on however many devices; it must not change when memory is "
        "short",
        "auto_find_batch_size",
    ),
    (
        "its gradient scaler leaves out steps, and which ones depends on the plan; use bf16, or "
        "float32",
        "fp16",
    ),
    ("its kernels replace layers that techniques split; leave it out", "use_liger_kernel"),
    ("it changes kernels for the whole process; leave it out", "full_determinism"),
    ("Saturn's own loop has no such mode", "debug"),
    (
        "Saturn keeps the checkpoints, and a task begins at its first step; load the weights that "
        "it is to begin with in make_trainer",
        "resume_from_checkpoint",
    ),
]
#: Arguments that are refused if the trainer evaluates.
_REFUSED_IN_EVALUATION: list[tuple[str, str]] = [
    (f"metrics are of all rows together; {_OR_ANOTHER}", "batch_eval_metrics"),
    (f"batches are joined; {_OR_ANOTHER}", "eval_do_concat_batches"),
    (f"evaluations come every so many steps; {_OR_ANOTHER}", "eval_delay"),
    (f"nothing is evaluated before the first step; {_OR_ANOTHER}", "eval_on_start"),
]


def _table() -> dict[str, Argument]:
    made: list[tuple[list[tuple[str, str]], Callable[[str], Argument]]] = [
        (_HONOURED, lambda why: Argument(HONOURED, why)),
        (_TIMED, lambda why: Argument(HONOURED, why, is_timed=True)),
        (_IRRELEVANT, lambda why: Argument(IRRELEVANT, why)),
        (_REFUSED, lambda why: Argument(REFUSED, why)),
        (_REFUSED_IN_EVALUATION, lambda why: Argument(REFUSED, why, of_evaluation=True)),
    ]
    return {
        name: make(why) for groups, make in made for why, names in groups for name in names.split()
    }


#: By name: the arguments of the version of transformers that this is tested with.
ARGUMENTS = _table()
#: The arguments of other versions.
OF_OTHER_VERSIONS = {
    "warmup_ratio": Argument(HONOURED, "the scheduler is the trainer's"),
    **{
        name: Argument(IRRELEVANT, why)
        for why, names in [
            (_SAVES, "overwrite_output_dir save_safetensors"),
            ("Saturn places the model and its batches", "no_cuda place_model_on_device"),
            ("Saturn counts samples and tokens itself", "include_tokens_per_second"),
            (_BY_TRACKERS, "logging_dir"),
        ]
        for name in names.split()
    },
}

_FOLLOWS = "it follows the {}, whose last bits depend on the plan; the training must not"
_PROJECTS = "it projects gradients of whole layers, which techniques split"
_IN_BACKWARD = "it updates weights during the backward pass"
_STAYS = "its state can't be moved from one technique to another"
_NO_CHECKPOINTS = "Saturn's checkpoints are not for the hub; `every_save` and `end` push the model"
#: Values of honoured arguments that are refused, and why.
REFUSED_VALUES: dict[str, dict[str, str]] = {
    "lr_scheduler_type": {
        "reduce_lr_on_plateau": _FOLLOWS.format("metric"),
        "greedy": _FOLLOWS.format("loss"),
    },
    "train_sampling_strategy": {"batch_rebalance": "it deals out batches to a number of ranks"},
    "hub_strategy": {"checkpoint": _NO_CHECKPOINTS, "all_checkpoints": _NO_CHECKPOINTS},
}
#: Kinds of optimizers that are refused, by a part of their names.
REFUSED_OPTIMIZERS = {
    "lomo": _IN_BACKWARD,
    "galore": _PROJECTS,
    "apollo": _PROJECTS,
    "layerwise": _IN_BACKWARD,
    "schedule_free": "it wants to be told when the model is evaluated and saved",
    "bnb": _STAYS,
    "8bit": _STAYS,
    "paged": _STAYS,
}


_BEGINNING = """\
# The arguments of a Trainer

*What becomes of each argument of `TrainingArguments` when a Trainer is a task?*

Each argument of a Trainer that [is a task](trainer.md) is one of these:

- *honoured*: the task trains, evaluates or saves as the argument says;
- *irrelevant*: the argument is about something that Saturn does by itself, or changes no number of
  the training;
- *refused*: only the default is taken. Any other value makes `Task.from_trainer` raise
  `InvalidInput`, with the reason.

An argument that is not listed here, of another version of transformers, must have its default.

{}. `python -m saturn.trainers.arguments` prints this page, of the transformers that is installed.

| argument | what becomes of it | how, or why |
|---|---|---|"""


def known(name: str) -> Argument | None:
    """How Saturn treats an argument; None if the argument is unknown."""
    return ARGUMENTS.get(name) or OF_OTHER_VERSIONS.get(name)


def is_untimed(name: str) -> bool:
    """Whether an argument certainly doesn't change the time of a step."""
    argument = known(name)
    return argument is not None and not argument.is_timed and argument.verdict != REFUSED


def reasons_against(args: Any, *, evaluates: bool) -> Iterator[str]:
    """Why these arguments can't be honoured, each as a clause that names the argument.

    `evaluates` says whether the task uses the trainer's evaluation.
    """
    from transformers import TrainingArguments

    for field in dataclasses.fields(TrainingArguments):
        name, value, default = field.name, getattr(args, field.name, None), _default(field)
        argument = known(name)
        if argument is None:
            if value != default:
                yield f"`{name}`: Saturn doesn't know this argument; leave it at its default"
        elif (
            argument.verdict == REFUSED
            and (evaluates or not argument.of_evaluation)
            and bool(value) != bool(default)
        ):
            yield f"`{_with_value(name, value)}`: {argument.why}"
    for name, reasons in REFUSED_VALUES.items():
        if (value := text_of(getattr(args, name, ""))) in reasons:
            yield f"`{name}={value}`: {reasons[value]}"
    optimizer = text_of(args.optim)
    for kind, reason in REFUSED_OPTIMIZERS.items():
        if kind in optimizer:
            yield f"`optim={optimizer}`: {reason}"
            break


def text_of(value: Any) -> str:
    """A value as its user writes it; it may be a member of an enumeration."""
    return str(getattr(value, "value", value))


def _with_value(name: str, value: Any) -> str:
    """The argument's name, with its value if that is False, which a reader would look for."""
    return f"{name}=False" if value is False else name


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    make: Callable[[], Any] | Any = field.default_factory
    return None if make is dataclasses.MISSING else make()


def page() -> str:
    """`docs/trainer-arguments.md`, for the installed version of transformers.

    The page does not name the version, so a release that changes no argument doesn't change it.
    """
    from transformers import TrainingArguments

    rows = []
    for field in dataclasses.fields(TrainingArguments):
        argument = ARGUMENTS[field.name]
        why = argument.why
        if argument.of_evaluation:
            why = f"where the trainer evaluates: {why}"
        values = REFUSED_VALUES.get(field.name, {})
        if field.name == "optim":
            values = {f"*{kind}*": reason for kind, reason in REFUSED_OPTIMIZERS.items()}
        by_reason: dict[str, list[str]] = {}
        for value, reason in values.items():
            by_reason.setdefault(reason, []).append(f"`{value}`")
        for reason, names in by_reason.items():
            why += f"; refused: {', '.join(names)} ({reason})"
        rows.append(f"| `{field.name}` | {argument.verdict} | {why} |")
    numbers = ", ".join(
        f"{sum(ARGUMENTS[field.name].verdict == verdict for field in _fields())} {verdict}"
        for verdict in (HONOURED, IRRELEVANT, REFUSED)
    )
    return "\n".join([_BEGINNING.format(numbers), *rows, ""])


def _fields() -> tuple[dataclasses.Field[Any], ...]:
    from transformers import TrainingArguments

    return dataclasses.fields(TrainingArguments)


if __name__ == "__main__":
    print(page(), end="")
