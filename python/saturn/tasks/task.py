"""A task: one model to train, as its user describes it.

A task is checked when it is made, as far as that is possible without a run. It is only a
description: `saturn.runs` plans and trains it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from saturn.plain.calls import explained
from saturn.scripts.command import ScriptDefinition
from saturn.tasks import arguments, evaluation
from saturn.tasks.allowed import checked_knobs, checked_techniques
from saturn.tasks.beginnings import checked_continue, checked_start
from saturn.tasks.definition import TaskDefinition
from saturn.tasks.hparams import HParams
from saturn.tasks.model_keywords import check_keywords
from saturn.tasks.strategy import Strategy
from saturn.tasks.wishes import (
    checked_deadline,
    checked_lateness,
    checked_priority,
    checked_time,
    names_before,
)

if TYPE_CHECKING:
    from saturn.runs.result import RunResult
    from saturn.tasks.wishes import Before
    from saturn.training.step_loss import StepLoss


class Task:
    """One model to train: model, data, loss, hyper-parameters.

    Args:
        get_model: returns the `torch.nn.Module`; called with the extra keywords of `hparams`, or
            with one mapping that holds them.
        get_dataloader: returns a `DataLoader`, or an iterable of batches, whose batch size is the
            global batch. A batch is an (inputs, labels) pair, or a mapping.
        loss_function: `loss_function(outputs, labels)` → the scalar mean loss. For batches that
            are mappings, `loss_function(outputs, batch)`, or None for the model's own
            `outputs.loss`.
        hparams: see `HParams`.
        gpu_range: numbers of devices (GPUs or CPU slots) that the plan may choose; all by default.
        name: unique among the tasks of a run; `task-<n>` by default.
        hints: what techniques may know about the model, such as {"attention": "sdpa"}: see
            docs/builtin-techniques.md.
        save_dir: where a copy of the last checkpoint goes when training is done, as
            `<save_dir>/<task>/step-<n>/`, with n in eight digits. A model of transformers is also
            written as `<save_dir>/<task>/step-<n>-huggingface/`, for `from_pretrained`.
        seed: decides model weights, order of data, and every other random number.
        loss_weight: `loss_weight(batch)` → the weight of a slice of a batch in the loss of the
            whole, if that is not its number of samples but, for example, its number of tokens.
        training_step: `training_step(model, batch)` → the scalar mean loss of a batch. It replaces
            `loss_function`, for losses that take more than one call of the model; Saturn runs the
            backward itself. Techniques that give no rank the whole model (pipelines) can't run it.
        priority: a whole number, 0 by default. A task of higher priority ends sooner: plans
            minimise the weighted sum of all tasks' ends, in which it has a larger weight.
        deadline: when the task should have ended, in seconds on the run's clock. The clock begins
            when the run's workers are ready, and stands still while no process drives the run. A
            plan keeps deadlines if any plan can; a task that misses its own goes on.
        late_price: makes the deadline soft: the price of a second after it. Plans keep hard
            deadlines first, and then make the sum of these prices small, before anything else. Only
            the ratio of the prices of different tasks matters.
        most_late: the most seconds by which a plan may miss the soft deadline, if any plan can.
        release: the task does not train before this time on the run's clock, in seconds.
        techniques: names of the techniques that the plan may choose, such as ["ddp", "fsdp"]; or
            names, each with a minus before it, that it may not choose: ["-pipeline"]. All are
            allowed by default.
        knobs: values that a technique's knobs must have, such as
            {"fsdp": {"cpu_offload": False}, "pipeline": {"microbatches": [4, 8]}}; a list has
            several allowed values. Trials choose all other knobs.
        after: tasks, or their names, that must be done before this task trains. If one of them
            fails, is cancelled or is stopped, this task is cancelled.
        evaluate: what is measured of the model while it trains: an `Evaluation`, the pair
            (get_dataloader, metrics), or a function of the model that returns a mapping of names
            to numbers.
        evaluate_every: steps between two evaluations. By default there is one evaluation, at the
            end; it happens in any case.
        best: a metric, and "min" or "max", such as ("eval_loss", "min"): the checkpoint with the
            metric's best value is kept beside the last one.
        parameters: values that distinguish this task from others, by name, for reports and tables.
            By default the learning rate, and the keywords for `get_model`.
        start_from: the path of the weights that the model starts with, at step 0 and with a fresh
            optimizer: a file of `torch.save` (a state dict, or a dictionary with one under `model`,
            `state_dict` or `model_state_dict`) or of safetensors, a checkpoint of a Saturn run, or
            a directory that `export` or `save_pretrained` wrote. Names and shapes must be those of
            the model's `state_dict()`. The file must not change while the task trains.
        continue_from: a run and the name of one of its tasks, such as ("saturn_runs/my-run", "a").
            This task continues from that task's last checkpoint, with its weights, optimizer,
            scheduler, random streams, position in the data and number of steps. The length in
            `hparams` includes the steps that were already trained, and `seed` must be the same.
    After `search`, `strategies` has the measured strategies. After `orchestrate`,
    `selected_strategy` is the strategy with which the task trained last.
    """

    @explained("Task")
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
        late_price: float | None = None,
        most_late: float | None = None,
        release: float = 0.0,
        after: Before = (),
        techniques: Iterable[str] | None = None,
        knobs: Mapping[str, Mapping[str, Any]] | None = None,
        evaluate: Any = None,
        evaluate_every: int | None = None,
        best: tuple[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        start_from: str | os.PathLike[str] | None = None,
        continue_from: tuple[str | os.PathLike[str] | RunResult, str] | None = None,
    ) -> None:
        """Check and store the arguments; raises `TypeError` or `ValueError`."""
        arguments.check_functions(
            get_model, get_dataloader, loss_function, loss_weight, training_step
        )
        arguments.check_values(hparams, hints, seed)
        check_keywords(get_model, hparams.kwargs, HParams.known(), hparams.model_kwargs)
        arguments.check_beginning(start_from, continue_from)
        self.get_model = get_model
        self.get_dataloader = get_dataloader
        self.loss_function = loss_function
        self.hparams = hparams
        self.gpu_range = arguments.gpu_counts(gpu_range)
        self.name = arguments.checked_name(name)
        self.hints = dict(hints or {})
        self.save_dir = None if save_dir is None else Path(save_dir)
        self.seed = seed
        self.loss_weight = loss_weight
        self.training_step = training_step
        #: For a task made of a trainer: the object that computes its loss, and the content that
        #: replaces its functions in its profile key.
        self._step_loss: StepLoss | None = None
        self._performs_as: Any = None
        #: The same for its evaluation, if the trainer evaluates.
        self._evaluates_as: Any = None
        #: Whether `save_dir` gets the best checkpoint instead of the last.
        self._saves_best = False
        self.priority = checked_priority(priority)
        self.deadline = checked_deadline(deadline)
        self.late_price, self.most_late = checked_lateness(deadline, late_price, most_late)
        self.release = checked_time("release", release)
        self.after = names_before(after)
        self.techniques = techniques
        self.knobs = knobs
        self.parameters = arguments.parameters_of(hparams) if parameters is None else parameters
        self.evaluation = evaluation.checked(evaluate, evaluate_every, best)
        if training_step is not None:
            evaluation.check_caller(self.evaluation.evaluate, "training_step")
        self._starting_weights = checked_start(start_from)
        #: Path of the weights that the model starts with; None if `get_model` makes them.
        self.start_from = None if self._starting_weights is None else self._starting_weights.path
        #: (run directory, name) of the task that this one continues.
        self.continue_from = checked_continue(continue_from)
        #: Makes the task for the rest of this task's script, which a run gets with this one.
        self._rest: Callable[[Task], Task] | None = None
        self.strategies: list[Strategy] = []
        self.selected_strategy: Strategy | None = None
        #: The profile key under which `strategies` was measured; while it is the same, they hold.
        self._measured_as: str | None = None

    @property
    def techniques(self) -> list[str] | None:
        """Names of allowed techniques, or of forbidden ones with a minus; None: all are allowed."""
        return self._techniques

    @techniques.setter
    def techniques(self, names: Iterable[str] | None) -> None:
        self._techniques = checked_techniques(names)

    @property
    def knobs(self) -> Mapping[str, Mapping[str, Any]]:
        """The allowed values: a list for each technique and knob."""
        return self._knobs

    @knobs.setter
    def knobs(self, values: Mapping[str, Mapping[str, Any]] | None) -> None:
        self._knobs = checked_knobs(values)

    @property
    def parameters(self) -> dict[str, Any]:
        """Values that distinguish the task from others: numbers, texts or booleans, by name."""
        return self._parameters

    @parameters.setter
    def parameters(self, values: Mapping[str, Any]) -> None:
        self._parameters = arguments.checked_parameters(values)

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
        late_price: float | None = None,
        most_late: float | None = None,
        release: float = 0.0,
        after: Before = (),
        techniques: Iterable[str] | None = None,
        knobs: Mapping[str, Mapping[str, Any]] | None = None,
        save_dir: str | os.PathLike[str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        **others: NoReturn,
    ) -> Task:
        """A script, such as one for torchrun, unchanged.

        If the script makes a `transformers.Trainer` and calls its `train()`, it is run up to that
        call. The task then trains as that trainer would, under every technique (see
        `from_trainer`). Afterwards the script goes on with the trained model, in a task of its own
        named `<name>-rest`.

        Any other script trains by itself. It reports its progress by `saturn.report`, or by lines
        of JSON in the file that `SATURN_REPORT` names. It is measured for a few steps, planned, and
        started in torchrun's environment, with a process for each device (see docs/scripts.md).

        Args:
            path: the script, in Python or an executable file.
            args: the script's arguments.
            name: unique among the tasks planned together; made of the script's name by default.
            steps: how many steps it trains in all; without it, a report must have `total_steps`.
            gpu_range: device counts that it can use; one device by default, any for a trainer.
            resume: the script's flag for the path of a checkpoint to resume from, such as
                `"--load"`, or `"--load="`. By default `--resume_from_checkpoint`, if the script's
                text contains that name. False: the script can't resume; it is then never moved,
                and starts from the beginning after a crash.
            cwd: the directory in which it runs; the present one by default.
            environment: environment variables for this script only.
            report_within_s: the longest time between two reports, and before the first, in
                seconds; 600 by default.
            stop_within_s: seconds that the script has to save and end when it is asked to stop; 60
                by default.
            trainer: whether the script makes a trainer; by default, its text decides.
            priority: as for any task.
            deadline: as for any task.
            late_price: as for any task.
            most_late: as for any task.
            release: as for any task.
            after: as for any task.
            techniques: as for any task, if the script makes a trainer.
            knobs: as for any task, if the script makes a trainer.
            save_dir: as for any task, if the script makes a trainer; any other script writes where
                its own arguments say.
            parameters: as for any task. By default none; for a trainer, its learning rate.
            others: none is allowed. Other arguments of `Task` (`seed`, `evaluate`, `best`) raise a
                `TypeError` that says how a script gets them.

        Raises `TypeError`, `ValueError`, and `FileNotFoundError` if there is no such script.
        """
        from saturn.scripts.task import of_script

        return of_script(
            path,
            args,
            name=name,
            gpu_range=gpu_range,
            cwd=cwd,
            environment=environment,
            trainer=trainer,
            parameters=parameters,
            of_trainer={"techniques": techniques, "knobs": knobs, "save_dir": save_dir},
            of_own_loop={
                "steps": steps,
                "resume": resume,
                "report_within_s": report_within_s,
                "stop_within_s": stop_within_s,
            },
            wishes={
                "priority": priority,
                "deadline": deadline,
                "late_price": late_price,
                "most_late": most_late,
                "release": release,
                "after": after,
            },
            others=others,
        )

    @classmethod
    def from_trainer(
        cls,
        make_trainer: Callable[[], Any],
        gpu_range: Iterable[int] | int | None = None,
        name: str | None = None,
        hints: Mapping[str, Any] | None = None,
        save_dir: str | os.PathLike[str] | None = None,
        *,
        precision: str | None = None,
        **options: Any,
    ) -> Task:
        """A task that trains exactly as the trainer from `make_trainer` would.

        Model, data, collator, loss, optimizer, scheduler, accumulation, clipping, precision and
        seeds are the trainer's. This call makes the trainer once, on the CPU, to read its settings;
        nothing is sent anywhere. The workers make it again where they need it.

        Args:
            make_trainer: called without arguments, returns a `transformers.Trainer`, or one of
                TRL's, on which `train()` has not been called. Its global batch is
                `per_device_train_batch_size` times `gradient_accumulation_steps`, on any number
                of devices.
            gpu_range: as for `Task`.
            name: as for `Task`.
            hints: as for `Task`.
            save_dir: as for `Task`.
            precision: "bf16-params" has a trainer with `bf16=True` train under `fsdp` as `HParams`
                says; None, the default, is the trainer's own precision.
            options: `seed` (with which the random streams are seeded before `make_trainer` is
                called), `priority`, `deadline`, `late_price`, `most_late`, `release`, `after`,
                `techniques`, `knobs`, `parameters`, `continue_from`. `evaluate` replaces the
                trainer's own evaluation (None: no evaluation); `evaluate_every` and `best` replace
                the trainer's settings. Weights to start from are loaded in `make_trainer`.

        Raises `InvalidInput` for what Saturn can't train as the trainer would: each reason names
        the argument, or the method, that it is about.
        """
        from saturn.tasks.of_trainers import of_trainer

        of_task = {"gpu_range": gpu_range, "name": name, "hints": hints, "save_dir": save_dir}
        return of_trainer(cls, make_trainer, precision, of_task | options)

    @classmethod
    def from_lightning(
        cls,
        make_module: Callable[..., Any],
        make_data: Callable[[], Any],
        hparams: HParams,
        gpu_range: Iterable[int] | int | None = None,
        name: str | None = None,
        hints: Mapping[str, Any] | None = None,
        save_dir: str | os.PathLike[str] | None = None,
        *,
        ignored_hooks: Sequence[str] = (),
        **options: Any,
    ) -> Task:
        """A task that trains a `lightning.pytorch.LightningModule`.

        The module's `training_step` and `configure_optimizers` are the task's; so is its
        `validation_step`, if the data module has a `val_dataloader`. This call makes module and
        loader once, to read them; the workers make them again (see docs/frameworks.md).

        Args:
            make_module: returns the module; called with the extra keywords of `hparams`, and with
                `lr` if it has that parameter. It may be the module's class.
            make_data: returns a `DataLoader` of global batches, or a `LightningDataModule`, whose
                `prepare_data` is called once, by this call.
            hparams: learning rate, length, accumulation, clipping and precision. The learning rate
                must be that of `configure_optimizers`.
            gpu_range: as for `Task`.
            name: as for `Task`.
            hints: as for `Task`.
            save_dir: as for `Task`.
            ignored_hooks: methods of the module or data module that training can do without, such
                as those that only log. Any other overridden method that Saturn would not call is
                refused.
            options: `seed`, `loss_weight`, `priority`, `deadline`, `late_price`, `most_late`,
                `release`, `after`, `techniques`, `knobs`, `evaluate_every`, `best`, `parameters`;
                and `evaluate`, a function of the model, which replaces the module's own validation
                (None: no evaluation).

        Raises `TypeError`, and `InvalidInput` for what Saturn can't train as Lightning would, with
        the reason.
        """
        from saturn.tasks.of_trainers import of_lightning

        of_task = {"gpu_range": gpu_range, "name": name, "hints": hints, "save_dir": save_dir}
        return of_lightning(cls, make_module, make_data, hparams, ignored_hooks, of_task | options)

    def definition(self) -> TaskDefinition | ScriptDefinition:
        """The definition, which travels to the workers."""
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
            start_from=self._starting_weights,
        )

    def __repr__(self) -> str:
        """Show name and hyper-parameters."""
        return f"Task({self.name!r}, {self.hparams!r})"
