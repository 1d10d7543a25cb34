"""A task: one model to train, as its user describes it."""

from __future__ import annotations

import functools
import itertools
import math
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from saturn import evaluation
from saturn.allowed import checked_knobs, checked_techniques
from saturn.definition import FLOAT32, PRECISIONS, TaskDefinition
from saturn.script import ScriptDefinition
from saturn.strategy import Strategy
from saturn.wishes import checked_deadline, checked_priority, checked_time, names_before

if TYPE_CHECKING:
    from saturn.training.step_loss import StepLoss
    from saturn.wishes import Before

_numbers = itertools.count(1)


class HParams:
    """Hyper-parameters of a task: how long it trains, and with what optimizer.

    Args:
        lr: learning rate.
        epochs: how long the task trains, as passes over the loader. Give either this or
            `batch_count`.
        batch_count: how long the task trains, as a number of batches of the loader.
        optimizer_cls: called with the trainable parameters and `lr=`; a class or a
            `functools.partial` of one. AdamW by default.
        gradient_accumulation_steps: how many consecutive batches of the loader make one optimizer
            step, across the ends of epochs too; the last step takes the batches that are left.
        max_grad_norm: before each step gradients are scaled down to this 2-norm of the whole
            model's where it is larger, as by `torch.nn.utils.clip_grad_norm_`; None: never.
        precision: "float32"; "bf16" or "fp16": the forward and the loss run under
            `torch.autocast`, for fp16 with a scaled loss;
            "bf16-params": `fsdp` gathers and computes in bf16, and adds gradients in float32.
            Parameters and optimizer always stay as they are built.
        deterministic: on GPUs, only kernels that add in a fixed order
            (`torch.use_deterministic_algorithms`): slower, and a task fails whose operations have
            no such kernel.
        tf32: on GPUs, matrix products and convolutions in float32 compute in TF32: faster, and
            exact to 3 digits.
        parameter_groups: settings of the optimizer for some parameters by name, such as
            [{"params": ["*.bias", "*norm*"], "weight_decay": 0.0}]: the names, or patterns of them
            (as of `fnmatch`), in `params`, and whatever a parameter group of the optimizer may say
            besides. A parameter is in the first group that names it; all others have the
            optimizer's own settings.
        epoch_batches: how many batches the loader has in an epoch, for steps that end with their
            epoch: its last step takes the batches that are left, where steps take several.
        lr_scheduler: called with the optimizer, returns a torch learning rate scheduler that is
            stepped after every optimizer step; a class, a `functools.partial` of one, or a
            function. None: the learning rate stays.
        kwargs: all other keywords go to `get_model`.
    """

    def __init__(
        self,
        lr: float,
        epochs: int | None = None,
        batch_count: int | None = None,
        optimizer_cls: Callable[..., Any] | None = None,
        *,
        gradient_accumulation_steps: int = 1,
        max_grad_norm: float | None = None,
        precision: str = FLOAT32,
        deterministic: bool = False,
        tf32: bool = False,
        lr_scheduler: Callable[..., Any] | None = None,
        parameter_groups: Sequence[Mapping[str, Any]] = (),
        epoch_batches: int | None = None,
        **kwargs: Any,
    ) -> None:
        """Check and keep them; raises `TypeError` or `ValueError`."""
        _check_positive("lr", lr)
        if (epochs is None) == (batch_count is None):
            given = "neither is" if epochs is None else "both are"
            raise ValueError(
                f"{given} given of epochs and batch_count; HParams needs exactly one of them"
            )
        _check_count("epochs", epochs)
        _check_count("batch_count", batch_count)
        if optimizer_cls is not None and not callable(optimizer_cls):
            raise TypeError(
                f"optimizer_cls is a {type(optimizer_cls).__name__}; it must be an optimizer's "
                "class, such as torch.optim.SGD"
            )
        _check_count("gradient_accumulation_steps", gradient_accumulation_steps)
        if max_grad_norm is not None:
            _check_positive("max_grad_norm", max_grad_norm)
        if precision not in PRECISIONS:
            known = ", ".join(f"`{each}`" for each in PRECISIONS)
            raise ValueError(f"precision is {precision!r}; it must be one of {known}")
        _check_flag("deterministic", deterministic)
        _check_flag("tf32", tf32)
        if lr_scheduler is not None:
            _check_lr_scheduler(lr_scheduler)
        _check_count("epoch_batches", epoch_batches)
        self.parameter_groups = _checked_groups(parameter_groups)
        self.epoch_batches = epoch_batches
        self.lr = float(lr)
        self.epochs = epochs
        self.batch_count = batch_count
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.max_grad_norm = None if max_grad_norm is None else float(max_grad_norm)
        self.precision = precision
        self.deterministic = deterministic
        self.tf32 = tf32
        self.lr_scheduler = lr_scheduler
        self.kwargs = kwargs
        self._optimizer_cls = optimizer_cls

    @property
    def optimizer_cls(self) -> Callable[..., Any]:
        """The optimizer's class."""
        if self._optimizer_cls is None:
            import torch

            return torch.optim.AdamW
        return self._optimizer_cls

    def __repr__(self) -> str:
        """Show what was given."""
        length = f"epochs={self.epochs}" if self.epochs else f"batch_count={self.batch_count}"
        rest = "".join(f", {key}={value!r}" for key, value in self.kwargs.items())
        return f"HParams(lr={self.lr:g}, {length}{rest})"


class Task:
    """One model to train: model, data, loss, hyper-parameters.

    Args:
        get_model: returns the `torch.nn.Module`; called with the extra keywords of `hparams`, or
            with one mapping that holds them.
        get_dataloader: returns a `DataLoader`, or an iterable of batches, whose batch size is the
            global batch. A batch is an (inputs, labels) pair, or a mapping.
        loss_function: `loss_function(outputs, labels)` → the scalar mean loss; for batches that
            are mappings `loss_function(outputs, batch)`, or None for the model's own
            `outputs.loss`.
        hparams: see `HParams`.
        gpu_range: numbers of devices (GPUs or CPU slots) that the plan may choose; all by default.
        name: unique among the tasks of a run; `task-<n>` by default.
        hints: what techniques may know about the model, such as {"attention": "sdpa"}: see
            docs/builtin-techniques.md.
        save_dir: where a copy of the last checkpoint goes when training is done, as
            `<save_dir>/<task>/step-<n>/`; a model of transformers is also written as
            `<save_dir>/<task>/step-<n>-huggingface/`, for `from_pretrained`.
        seed: decides model weights, order of data, and every other random number.
        loss_weight: `loss_weight(batch)` → the weight of a slice of a batch in the loss of the
            whole (its number of tokens, say), where that is not its number of samples.
        training_step: `training_step(model, batch)` → the scalar mean loss of a batch, in place of
            `loss_function`, for losses that take more than one call of the model; Saturn takes the
            backward itself. Techniques that give no rank the whole model (pipelines) can't run it.
        priority: a task of higher priority ends sooner, where that costs the others no more than
            it gains; 0 by default.
        deadline: when the task should have ended, seconds on the run's clock, which begins when
            the run's workers are ready and stands still while no process drives the run. A plan
            keeps deadlines if any plan can; a task that misses its own goes on.
        release: the task does not train before this time on the run's clock, seconds.
        techniques: names of the techniques that the plan may choose, such as ["ddp", "fsdp"]; or,
            each with a minus before it, of those that it may not: ["-pipeline"]. All by default.
        knobs: values that a technique's knobs must have, such as
            {"fsdp": {"cpu_offload": False}, "pipeline": {"microbatches": [4, 8]}}; a list holds
            several values that are allowed. Trials choose all others.
        after: tasks, or their names, that must be done before this task trains. Where one of them
            fails, is cancelled or is stopped, this task is cancelled.
        evaluate: what is measured of the model while it trains: an `Evaluation`, the pair
            (get_dataloader, metrics), or a function of the model that returns a mapping of names
            to numbers.
        evaluate_every: steps between two evaluations; there is one at the end in any case, and no
            other by default.
        best: a metric, and "min" or "max": the checkpoint with its best value is kept beside the
            last, as ("eval_loss", "min").
        parameters: the values that tell it from other tasks, by name, for reports and tables; by
            default the learning rate, and the keywords for `get_model`.

    After `search`, `strategies` holds what was found; after `orchestrate`, `selected_strategy` is
    the strategy that the task trained with last.
    """

    def __init__(
        self,
        get_model: Callable[..., Any],
        get_dataloader: Callable[..., Any],
        loss_function: Callable[..., Any] | None,
        hparams: HParams,
        gpu_range: Iterable[int] | int | None = None,
        name: str | None = None,
        hints: Mapping[str, Any] | None = None,
        save_dir: str | os.PathLike[str] | None = None,
        *,
        seed: int = 0,
        loss_weight: Callable[..., Any] | None = None,
        training_step: Callable[..., Any] | None = None,
        priority: int = 0,
        deadline: float | None = None,
        release: float = 0.0,
        after: Before = (),
        techniques: Iterable[str] | None = None,
        knobs: Mapping[str, Mapping[str, Any]] | None = None,
        evaluate: Any = None,
        evaluate_every: int | None = None,
        best: tuple[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        """Check and keep it; raises `TypeError` or `ValueError`."""
        _check_callable("get_model", get_model, "a function that returns the torch.nn.Module")
        _check_callable("get_dataloader", get_dataloader, "a function that returns the DataLoader")
        if loss_function is not None:
            _check_callable("loss_function", loss_function, "a function of (outputs, labels)")
        if loss_weight is not None:
            _check_callable("loss_weight", loss_weight, "a function of a batch")
        if training_step is not None:
            _check_callable("training_step", training_step, "a function of (model, batch)")
            if loss_function is not None:
                raise ValueError(
                    "both loss_function and training_step are given; training_step computes the "
                    "loss by itself, so loss_function must be None"
                )
        if not isinstance(hparams, HParams):
            raise TypeError(
                f"hparams is a {type(hparams).__name__}; it must be saturn.HParams(lr=…, …)"
            )
        if name is None:
            name = f"task-{next(_numbers)}"
        elif not isinstance(name, str) or not name:
            raise ValueError(f"name is {name!r}; it must be a non-empty string")
        if hints is not None and not isinstance(hints, Mapping):
            raise TypeError(f"hints is a {type(hints).__name__}; it must be a mapping")
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise ValueError(f"seed is {seed!r}; it must be an integer from 0 to 2**63 - 1")
        self.get_model = get_model
        self.get_dataloader = get_dataloader
        self.loss_function = loss_function
        self.hparams = hparams
        self.gpu_range = _gpu_counts(gpu_range)
        self.name = name
        self.hints = dict(hints or {})
        self.save_dir = None if save_dir is None else Path(save_dir)
        self.seed = seed
        self.loss_weight = loss_weight
        self.training_step = training_step
        #: Of a task that was made of a trainer: what computes its loss, and what stands for it in
        #: its profile key.
        self._step_loss: StepLoss | None = None
        self._performs_as: Any = None
        #: The same for its evaluation, where that is the trainer's.
        self._evaluates_as: Any = None
        #: Whether the best checkpoint goes to `save_dir`, not the last.
        self._saves_best = False
        self.priority = checked_priority(priority)
        self.deadline = checked_deadline(deadline)
        self.release = checked_time("release", release)
        self.after = names_before(after)
        self.techniques = techniques
        self.knobs = knobs
        self.parameters = _of_hparams(hparams) if parameters is None else parameters
        self.evaluation = evaluation.checked(evaluate, evaluate_every, best)
        #: Makes the task that comes with this one into a run, of the rest of its script.
        self._rest: Callable[[Task], Task] | None = None
        self.strategies: list[Strategy] = []
        self.selected_strategy: Strategy | None = None
        #: Profile key under which `strategies` was measured: they hold while it stays the same.
        self._measured_as: str | None = None

    @property
    def techniques(self) -> list[str] | None:
        """Names of the techniques that are allowed, or with a minus not; None: all are."""
        return self._techniques

    @techniques.setter
    def techniques(self, names: Iterable[str] | None) -> None:
        self._techniques = checked_techniques(names)

    @property
    def knobs(self) -> Mapping[str, Mapping[str, Any]]:
        """The values that are allowed, a list for each technique and knob."""
        return self._knobs

    @knobs.setter
    def knobs(self, values: Mapping[str, Mapping[str, Any]] | None) -> None:
        self._knobs = checked_knobs(values)

    @property
    def parameters(self) -> dict[str, Any]:
        """The values that tell it from other tasks: numbers, texts, true or false, by name."""
        return self._parameters

    @parameters.setter
    def parameters(self, values: Mapping[str, Any]) -> None:
        for name, value in values.items():
            if not isinstance(name, str) or not _is_plain(value):
                raise TypeError(
                    f"parameters holds {name!r}: {value!r}; it must hold numbers, texts, true or "
                    "false, by name"
                )
        self._parameters = dict(values)

    @classmethod
    def script(
        cls,
        path: str | os.PathLike[str],
        args: Iterable[object] = (),
        *,
        name: str | None = None,
        steps: int | None = None,
        gpu_range: Iterable[int] | int | None = None,
        resume: str | bool | None = None,
        cwd: str | os.PathLike[str] | None = None,
        environment: Mapping[str, str] | None = None,
        report_within_s: float | None = None,
        stop_within_s: float | None = None,
        trainer: bool | None = None,
        priority: int = 0,
        deadline: float | None = None,
        release: float = 0.0,
        after: Before = (),
        techniques: Iterable[str] | None = None,
        knobs: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> Task:
        """A script, such as one for torchrun, unchanged.

        One that makes a `transformers.Trainer` and calls its `train()` is run up to that call; the
        task trains as that trainer would, under every technique (see `from_trainer`). Then the
        script goes on with the trained model, in a task of its own, named `<name>-rest`.

        Any other script trains by itself. It says how far it is by `saturn.report`, or by lines of
        JSON in the file that `SATURN_REPORT` names. It is measured for a few steps, planned, and
        started with torchrun's environment, a process for each device (see docs/scripts.md).

        Args:
            path: the script, in Python or an executable file.
            args: what comes after its name.
            name: unique among the tasks planned together; made of the script's name by default.
            steps: how many it trains in all; where it is not given, a report has `total_steps`.
            gpu_range: device counts that it can use; one device by default, any for a trainer.
            resume: the script's flag that is followed by the path of a checkpoint to go on from,
                such as `"--load"`, or `"--load="`. By default `--resume_from_checkpoint`, if the
                script's text has that name. False: the script can't go on from a checkpoint; then
                it is never moved, and starts anew after a crash.
            cwd: the directory in which it runs; the present one by default.
            environment: environment variables for the script alone.
            report_within_s: the longest time between two reports, and before the first, seconds;
                600 by default.
            stop_within_s: seconds that it has to save and end when it is asked to; 60 by default.
            trainer: whether the script makes a trainer; by default, as its text looks.
            priority: as of any task.
            deadline: as of any task.
            release: as of any task.
            after: as of any task.
            techniques: as of any task, where the script makes a trainer.
            knobs: likewise.

        Raises `TypeError`, `ValueError`, and `FileNotFoundError` where there is no such script.
        """
        from saturn.script_task import of_script

        return of_script(
            path,
            args,
            name=name,
            gpu_range=gpu_range,
            cwd=cwd,
            environment=environment,
            trainer=trainer,
            of_trainer={"techniques": techniques, "knobs": knobs},
            of_own_loop={
                "steps": steps,
                "resume": resume,
                "report_within_s": report_within_s,
                "stop_within_s": stop_within_s,
            },
            wishes={
                "priority": priority,
                "deadline": deadline,
                "release": release,
                "after": after,
            },
        )

    @classmethod
    def from_trainer(
        cls,
        make_trainer: Callable[[], Any],
        gpu_range: Iterable[int] | int | None = None,
        name: str | None = None,
        hints: Mapping[str, Any] | None = None,
        save_dir: str | os.PathLike[str] | None = None,
        **options: Any,
    ) -> Task:
        """A task that trains as the trainer would that `make_trainer` returns.

        Model, data, collator, loss, optimizer, scheduler, accumulation, clipping, precision and
        seeds are the trainer's. The trainer is made once here, on the CPU, to be read, with
        nothing sent anywhere; and again by the workers, where they need one.

        Args:
            make_trainer: called without arguments, returns a `transformers.Trainer`, or one of
                TRL's, on which `train()` has not been called. Its global batch is
                `per_device_train_batch_size` times `gradient_accumulation_steps`, on any number
                of devices.
            gpu_range: as of `Task`.
            name: as of `Task`.
            hints: as of `Task`.
            save_dir: as of `Task`.
            options: `seed` (what the random streams are seeded with before `make_trainer` is
                called), `priority`, `deadline`, `release`, `after`, `techniques`, `knobs`;
                `evaluate`, in place of the trainer's own evaluation (None: none is done),
                `evaluate_every` and `best`, in place of what the trainer says of these.

        Raises `InvalidInput` for what Saturn can't train as the trainer would: each reason names
        the argument, or the method, that it is about.
        """
        from saturn.trainers.task import pieces_of

        pieces = pieces_of(
            make_trainer, seed=options.get("seed", 0), evaluates="evaluate" not in options
        )
        task = cls(
            *(pieces.source.get_model, pieces.source.get_dataloader, None),
            HParams(**pieces.hparams),
            gpu_range=gpu_range,
            name=name,
            hints=hints,
            save_dir=save_dir,
            **(pieces.evaluation | options),
        )
        task._step_loss, task._performs_as = pieces.source, pieces.performs_as
        task._evaluates_as, task._saves_best = pieces.evaluates_as, pieces.saves_best
        for note in pieces.notes:
            sys.stderr.write(f"saturn: task `{task.name}`: {note}\n")
        return task

    def definition(self) -> TaskDefinition | ScriptDefinition:
        """What travels to the workers."""
        return TaskDefinition(
            name=self.name,
            get_model=self.get_model,
            get_dataloader=self.get_dataloader,
            loss_function=self.loss_function,
            loss_weight=self.loss_weight,
            lr=self.hparams.lr,
            epochs=self.hparams.epochs,
            batch_count=self.hparams.batch_count,
            optimizer_cls=self.hparams._optimizer_cls,
            gradient_accumulation_steps=self.hparams.gradient_accumulation_steps,
            max_grad_norm=self.hparams.max_grad_norm,
            precision=self.hparams.precision,
            deterministic=self.hparams.deterministic,
            tf32=self.hparams.tf32,
            lr_scheduler=self.hparams.lr_scheduler,
            parameter_groups=self.hparams.parameter_groups,
            epoch_batches=self.hparams.epoch_batches,
            training_step=self.training_step,
            step_loss=self._step_loss,
            kwargs=self.hparams.kwargs,
            hints=self.hints,
            knobs=self._knobs,
            seed=self.seed,
            save_dir=None if self.save_dir is None else self.save_dir.absolute(),
            evaluate=self.evaluation.evaluate,
            evaluate_every=self.evaluation.every,
            best=self.evaluation.best,
            saves_best=self._saves_best,
        )

    def __repr__(self) -> str:
        """Name it."""
        return f"Task({self.name!r}, {self.hparams!r})"


def _of_hparams(hparams: HParams) -> dict[str, Any]:
    """What of them tells tasks apart: the learning rate, and what the model is built with."""
    return {
        "lr": hparams.lr,
        **{name: value for name, value in hparams.kwargs.items() if _is_plain(value)},
    }


def _is_plain(value: object) -> bool:
    """Whether a report can hold it."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool | int | str)


def _check_flag(field: str, value: bool) -> None:
    if not isinstance(value, bool):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be True or False")


def _check_count(field: str, value: int | None) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be a whole number")
    if value < 1:
        raise ValueError(f"{field} is {value}; it must be at least 1")


def _check_positive(field: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be a number")
    if not (math.isfinite(value) and value > 0):
        raise ValueError(f"{field} is {value}; it must be a positive number")


def _check_lr_scheduler(lr_scheduler: object) -> None:
    _check_callable(
        "lr_scheduler",
        lr_scheduler,
        "a scheduler's class, a functools.partial of one, or a function of the optimizer; it is "
        "called when the optimizer is there",
    )
    made = lr_scheduler.func if isinstance(lr_scheduler, functools.partial) else lr_scheduler
    # By name, because the face doesn't wait for torch; what a function returns is checked where
    # it is called.
    if getattr(made, "__name__", "") == "ReduceLROnPlateau":
        raise ValueError(
            "lr_scheduler is ReduceLROnPlateau, which follows the loss: the last bits of a loss "
            "depend on the plan, and the training must not; use a scheduler that follows the step"
        )


def _checked_groups(groups: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    wanted = 'such as [{"params": ["*.bias"], "weight_decay": 0.0}]'
    if isinstance(groups, Mapping | str) or not all(isinstance(each, Mapping) for each in groups):
        raise TypeError(f"parameter_groups must be a list of mappings, {wanted}")
    checked = []
    for number, group in enumerate(groups):
        names = group.get("params")
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise TypeError(
                f"parameter_groups[{number}] has no list of names in `params`; it must be {wanted}"
            )
        names = list(names)
        if not all(isinstance(name, str) for name in names):
            raise TypeError(
                f"parameter_groups[{number}] must have names in `params`, and nothing else; it "
                f"must be {wanted}"
            )
        checked.append({**group, "params": names})
    return checked


def _check_callable(field: str, value: object, wanted: str) -> None:
    if not callable(value):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be {wanted}")


def _gpu_counts(gpu_range: Iterable[int] | int | None) -> list[int] | None:
    if gpu_range is None:
        return None
    counts = [gpu_range] if isinstance(gpu_range, int) else list(gpu_range)
    for count in counts:
        if isinstance(count, bool) or not isinstance(count, int) or count < 1:
            raise ValueError(
                f"gpu_range holds {count!r}; it must hold device counts, whole numbers from 1"
            )
    if not counts:
        raise ValueError("gpu_range is empty; give the device counts that are allowed, or None")
    return sorted(set(counts))
