"""What of a trainer Saturn honours, what it sees to by itself, and what it must refuse.

A trainer that is taken is trained as it would have trained: what can't be kept is refused by name,
with the reason, before anything is measured. An argument of `TrainingArguments` that is in none of
the lists (that of a later version) must have its default.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from typing import Any


def names(text: str) -> frozenset[str]:
    """The words of a text."""
    return frozenset(text.split())


#: What decides how it trains.
HONOURED = names(
    """
    max_steps num_train_epochs per_device_train_batch_size gradient_accumulation_steps
    dataloader_drop_last dataloader_num_workers dataloader_prefetch_factor
    dataloader_multiprocessing_context seed data_seed train_sampling_strategy
    length_column_name accelerator_config learning_rate lr_scheduler_type lr_scheduler_kwargs
    warmup_steps warmup_ratio optim optim_args optim_target_modules weight_decay adam_beta1
    adam_beta2 adam_epsilon max_grad_norm bf16 tf32 label_smoothing_factor neftune_noise_alpha
    remove_unused_columns label_names average_tokens_across_devices use_cache
    eval_strategy eval_steps per_device_eval_batch_size prediction_loss_only include_for_metrics
    metric_for_best_model greater_is_better load_best_model_at_end
    """
)
#: What Saturn sees to by itself, or what changes no number of the training.
IGNORED = names(
    """
    output_dir logging_strategy logging_steps logging_first_step log_on_each_node
    logging_nan_inf_filter logging_dir include_num_input_tokens_seen include_tokens_per_second
    log_level log_level_replica disable_tqdm report_to run_name project trackio_space_id
    trackio_bucket_id trackio_static_space_id save_only_model save_strategy save_steps
    save_on_each_node save_total_limit save_safetensors enable_jit_checkpoint
    overwrite_output_dir resume_from_checkpoint ignore_data_skip
    restore_callback_states_from_checkpoint push_to_hub hub_token hub_private_repo
    hub_model_id hub_strategy hub_always_push hub_revision ddp_find_unused_parameters
    ddp_bucket_cap_mb ddp_broadcast_buffers ddp_static_graph ddp_backend ddp_timeout
    local_rank use_cpu no_cuda place_model_on_device dataloader_pin_memory
    dataloader_persistent_workers dataloader_in_order activation_checkpointing
    activation_checkpointing_kwargs gradient_checkpointing gradient_checkpointing_kwargs
    torch_compile torch_compile_backend torch_compile_mode torch_empty_cache_steps
    skip_memory_metrics eval_delay eval_on_start eval_do_concat_batches eval_use_gather_object
    eval_accumulation_steps batch_eval_metrics bf16_full_eval fp16_full_eval do_train do_eval
    do_predict
    liger_kernel_config fsdp_config
    """
)
_LAUNCHES = "it names a launcher; which parallelism and how many devices is what Saturn plans"
_MODES = "Saturn's own loop has no such mode"
#: What is refused where it is given, and why.
REFUSED: dict[str, str] = {
    "fsdp": _LAUNCHES,
    "deepspeed": _LAUNCHES,
    "parallelism_config": _LAUNCHES,
    "auto_find_batch_size": "the batch belongs to the task, on however many devices; it must not "
    "change when memory is short",
    "fp16": "its gradient scaler leaves out steps, and which ones depends on the plan; use bf16, "
    "or float32",
    "use_liger_kernel": "its kernels replace layers that techniques split; leave it out",
    "full_determinism": "it changes kernels for the whole process; leave it out",
    "debug": _MODES,
}
_SCHEDULERS = {
    "reduce_lr_on_plateau": "it follows a metric, whose last bits depend on the plan; the training "
    "must not",
    "greedy": "it follows the loss, whose last bits depend on the plan; the training must not",
}
#: Kinds of optimizers, by what their names hold.
_OPTIMIZERS = {
    "lomo": "it updates weights during the backward pass",
    "galore": "it projects gradients of whole layers, which techniques split",
    "apollo": "it projects gradients of whole layers, which techniques split",
    "layerwise": "it updates weights during the backward pass",
    "schedule_free": "it wants to be told when the model is evaluated and saved",
    "bnb": "its state can't be moved from one technique to another",
    "8bit": "its state can't be moved from one technique to another",
    "paged": "its state can't be moved from one technique to another",
}
#: Methods by which a class changes what `train` does, in ways that Saturn would not.
_OWN_LOOP = {
    "training_step": "Saturn takes the backward itself; put what it computes into `compute_loss`",
    "train": "Saturn runs a loop of its own",
    "_inner_training_loop": "Saturn runs a loop of its own",
    "_run_epoch": "Saturn runs a loop of its own",
    "_prepare_for_training": "Saturn runs a loop of its own",
    "_prepare_inputs": "it makes a step's batches with the model at work, which other plans would "
    "not make alike",
    "_prepare_input": "Saturn moves batches itself",
    "get_batch_samples": "Saturn fetches a step's batches itself",
    "set_initial_training_values": "Saturn counts steps itself",
    "_wrap_model": "Saturn spreads the model itself",
    "_clip_grad_norm": "Saturn clips gradients itself, over all devices",
    "create_accelerator_and_postprocess": "Saturn places the model itself",
}
#: The same of what `evaluate` does.
_OWN_EVALUATION = ("evaluate", "evaluation_loop")
_OR_ANOTHER = "or give `Task.from_trainer(…, evaluate=…)` another evaluation"
#: TRL's own steps only offload activations.
_TRL_STEP = "training_step"


def reasons_against(trainer: Any, *, evaluates: bool) -> Iterator[str]:
    """Why Saturn can't train as `trainer` would, each a clause that names what it is about.

    `evaluates` where its evaluation is to be the task's, if it has one.
    """
    yield from _against_state(trainer)
    yield from _against_arguments(trainer.args)
    yield from _against_class(type(trainer))
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


def _against_arguments(args: Any) -> Iterator[str]:
    from transformers import TrainingArguments

    for name, reason in REFUSED.items():
        if getattr(args, name, None):
            yield f"`{name}`: {reason}"
    if getattr(args, "sync_ref_model", False):
        yield "`sync_ref_model`: it changes the reference model between steps, by a callback"
    scheduler = _name(args.lr_scheduler_type)
    if scheduler in _SCHEDULERS:
        yield f"`lr_scheduler_type={scheduler}`: {_SCHEDULERS[scheduler]}"
    optimizer = _name(args.optim)
    for kind, reason in _OPTIMIZERS.items():
        if kind in optimizer:
            yield f"`optim={optimizer}`: {reason}"
            break
    if _name(getattr(args, "train_sampling_strategy", "")) == "batch_rebalance":
        yield "`train_sampling_strategy=batch_rebalance`: it deals out batches to a number of ranks"
    for field in dataclasses.fields(TrainingArguments):
        known = field.name in HONOURED or field.name in IGNORED or field.name in REFUSED
        if not known and getattr(args, field.name, None) != _default(field):
            yield f"`{field.name}`: Saturn doesn't know this argument; leave it at its default"


def _against_class(cls: type[Any]) -> Iterator[str]:
    for name, reason in _OWN_LOOP.items():
        owner = next((each for each in cls.__mro__ if name in vars(each)), None)
        if owner is None or is_of(owner, "transformers"):
            continue
        if name == _TRL_STEP and is_of(owner, "trl"):
            continue
        yield f"{owner.__name__} overrides `{name}`: {reason}"


def _against_evaluation(trainer: Any) -> Iterator[str]:
    args = trainer.args
    if _name(args.eval_strategy) == "no":
        if args.load_best_model_at_end:
            yield "`load_best_model_at_end`: nothing is evaluated, as `eval_strategy` is `no`"
        return
    if isinstance(trainer.eval_dataset, dict):
        yield f"`eval_dataset` is a dict, and a task has one evaluation: name one, {_OR_ANOTHER}"
    if getattr(args, "predict_with_generate", False):
        yield f"`predict_with_generate`: Saturn's evaluation predicts once; leave it, {_OR_ANOTHER}"
    if getattr(args, "batch_eval_metrics", False):
        yield f"`batch_eval_metrics`: metrics are of all rows together; leave it out, {_OR_ANOTHER}"
    if not getattr(args, "eval_do_concat_batches", True):
        yield f"`eval_do_concat_batches=False`: batches are joined; leave it out, {_OR_ANOTHER}"
    if args.eval_delay:
        yield f"`eval_delay`: evaluations come every so many steps; leave it out, {_OR_ANOTHER}"
    for name in _OWN_EVALUATION:
        owner = next(each for each in type(trainer).__mro__ if name in vars(each))
        if not is_of(owner, "transformers") and not is_of(owner, "trl"):
            yield f"{owner.__name__} overrides `{name}`: Saturn evaluates itself; {_OR_ANOTHER}"


def is_of(thing: Any, package: str) -> bool:
    """Whether a class, or a function, is a package's own."""
    return str(thing.__module__).partition(".")[0] == package


def _name(value: Any) -> str:
    return str(getattr(value, "value", value))


def _default(field: dataclasses.Field[Any]) -> Any:
    if field.default is not dataclasses.MISSING:
        return field.default
    make: Callable[[], Any] | Any = field.default_factory
    return None if make is dataclasses.MISSING else make()
