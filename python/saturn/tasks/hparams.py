"""Hyper-parameters: how long and how a task trains, and the keywords of its model.

They are checked when they are given, without torch. How a task uses them is in `task`, and how a
rank uses them is in `training`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from saturn.plain.calls import explained
from saturn.tasks.definition import FLOAT32, PRECISIONS
from saturn.tasks.model_keywords import meant


class HParams:
    """Hyper-parameters of a task: how long it trains, and with what optimizer.

    Args:
        lr: learning rate.
        epochs: how long the task trains, as passes over the loader. Give this, `steps` or
            `batch_count`.
        batch_count: how long the task trains, as a number of batches of the loader.
        optimizer_cls: called with the trainable parameters and `lr=`; a class or a
            `functools.partial` of one. AdamW by default.
        gradient_accumulation_steps: how many consecutive batches of the loader make one optimizer
            step, also across the ends of epochs; the last step takes the batches that are left.
        max_grad_norm: if the whole model's gradients have a larger 2-norm, they are scaled down to
            this norm before each step, as by `torch.nn.utils.clip_grad_norm_`; None: never.
        precision: "float32"; "bf16" or "fp16": the forward and the loss run under
            `torch.autocast`, for fp16 with a scaled loss;
            "bf16-params": `fsdp` gathers and computes in bf16, and adds gradients in float32.
            Parameters and optimizer always stay as they are built.
        deterministic: on GPUs, use only kernels that add in a fixed order
            (`torch.use_deterministic_algorithms`). They are slower, and a task fails if one of its
            operations has no such kernel.
        tf32: on GPUs, matrix products and convolutions in float32 compute in TF32: faster, and
            exact to 3 digits.
        parameter_groups: settings of the optimizer for some parameters by name, such as
            [{"params": ["*.bias", "*norm*"], "weight_decay": 0.0}]. `params` has names or patterns
            of names (as in `fnmatch`); the other entries are those of an optimizer's parameter
            group. A parameter is in the first group that names it; all others have the optimizer's
            own settings.
        epoch_batches: how many batches an epoch has, for steps that end with their epoch. If steps
            take several batches, an epoch's last step takes the batches that are left.
        lr_scheduler: called with the optimizer, returns a torch learning rate scheduler that is
            stepped after every optimizer step; a class, a `functools.partial` of one, or a
            function. None: the learning rate is constant.
        steps: how long the task trains, as a number of optimizer steps: the unit of progress, of
            evaluations and of schedulers.
        model_kwargs: keywords for `get_model` whose names `HParams` has itself, or which are
            training options of other libraries, such as {"eps": 1e-5}.
        kwargs: all other keywords go to `get_model`. `Task` refuses keywords that `get_model`
            doesn't take. It also refuses a training option of another library (`weight_decay`,
            `max_steps`) that `get_model` takes only as `**kwargs` or in one mapping.
    """

    @explained("HParams", meant)
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
        steps: int | None = None,
        model_kwargs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Check and store the values; raises `TypeError` or `ValueError`."""
        _check_positive("lr", lr)
        lengths = {"epochs": epochs, "steps": steps, "batch_count": batch_count}
        given = [name for name, length in lengths.items() if length is not None]
        if len(given) != 1:
            found = f"given are {' and '.join(given)}" if given else "none is given"
            raise ValueError(
                f"HParams needs exactly one of epochs, steps and batch_count; {found}"
                f"{_meant_length(kwargs, lengths)}"
            )
        for name, length in lengths.items():
            _check_count(name, length)
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
        self.steps = steps
        self.batch_count = batch_count
        if steps is not None:
            self.batch_count = _batches(steps, gradient_accumulation_steps, epoch_batches)
        self.gradient_accumulation_steps = gradient_accumulation_steps
        self.max_grad_norm = None if max_grad_norm is None else float(max_grad_norm)
        self.precision = precision
        self.deterministic = deterministic
        self.tf32 = tf32
        self.lr_scheduler = lr_scheduler
        self.model_kwargs = _checked_model_kwargs(model_kwargs, kwargs)
        #: All keywords for `get_model`.
        self.kwargs = {**kwargs, **self.model_kwargs}
        self._optimizer_cls = optimizer_cls

    @classmethod
    def known(cls) -> list[str]:
        """The keywords that do not go to `get_model`."""
        return [name for name in inspect.signature(cls).parameters if name != "kwargs"]

    @property
    def optimizer_cls(self) -> Callable[..., Any]:
        """The optimizer's class."""
        if self._optimizer_cls is None:
            import torch

            return torch.optim.AdamW
        return self._optimizer_cls

    @property
    def known_steps(self) -> int | None:
        """The task's optimizer steps, where this alone tells; None: its loader tells."""
        if self.steps is not None:
            return self.steps
        a_step, an_epoch = self.gradient_accumulation_steps, self.epoch_batches
        if an_epoch is None:
            return None if self.batch_count is None else math.ceil(self.batch_count / a_step)
        batches = self.batch_count
        whole = an_epoch * (self.epochs or 0) if batches is None else batches
        epochs, rest = divmod(whole, an_epoch)
        return epochs * math.ceil(an_epoch / a_step) + math.ceil(rest / a_step)

    def __repr__(self) -> str:
        """Show the given values."""
        lengths = {"epochs": self.epochs, "steps": self.steps, "batch_count": self.batch_count}
        length = next(f"{name}={given}" for name, given in lengths.items() if given)
        own = self.model_kwargs
        shown = {key: value for key, value in self.kwargs.items() if key not in own}
        shown |= {"model_kwargs": own} if own else {}
        rest = "".join(f", {key}={value!r}" for key, value in shown.items())
        return f"HParams(lr={self.lr:g}, {length}{rest})"


def _meant_length(kwargs: Mapping[str, Any], lengths: Iterable[str]) -> str:
    """A hint if one of the keywords for `get_model` may have been meant for a length."""
    for name, value in kwargs.items():
        near = meant(name, value, lengths)
        if any(length in near for length in lengths):
            return f" (`{name}` would go to get_model{near})"
    return ""


def _batches(steps: int, a_step: int, an_epoch: int | None) -> int:
    """How many batches `steps` take, if the last step of an epoch may take fewer."""
    if an_epoch is None:
        return steps * a_step
    epochs, rest = divmod(steps, math.ceil(an_epoch / a_step))
    return epochs * an_epoch + rest * a_step


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
    check_callable(
        "lr_scheduler",
        lr_scheduler,
        "a scheduler's class, a functools.partial of one, or a function of the optimizer; it is "
        "called when the optimizer is there",
    )
    made = lr_scheduler.func if isinstance(lr_scheduler, functools.partial) else lr_scheduler
    # Recognised by name, because `import saturn` doesn't import torch. A function's result is
    # checked when the function is called.
    if getattr(made, "__name__", "") == "ReduceLROnPlateau":
        raise ValueError(
            "lr_scheduler is ReduceLROnPlateau, which follows the loss: the last bits of a loss "
            "depend on the plan, and the training must not; use a scheduler that follows the step"
        )


def _checked_model_kwargs(
    given: Mapping[str, Any] | None, others: Mapping[str, Any]
) -> dict[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise TypeError(
            f"model_kwargs is a {type(given).__name__}; it must be a mapping of keywords of "
            'get_model, such as {"eps": 1e-5}'
        )
    for name in given or {}:
        if not isinstance(name, str):
            raise TypeError(f"model_kwargs holds {name!r}; its names must be texts")
        if name in others:
            raise TypeError(f"`{name}` is given twice: as a keyword, and in model_kwargs")
    return dict(given or {})


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


def check_callable(field: str, value: object, wanted: str) -> None:
    """Raise `TypeError`, which says what is `wanted`, if a value can't be called."""
    if not callable(value):
        raise TypeError(f"{field} is a {type(value).__name__}; it must be {wanted}")
