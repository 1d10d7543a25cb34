"""The arguments of `saturn.Task`: each is checked when the task is made."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from saturn.tasks.hparams import HParams, check_callable

_numbers = itertools.count(1)


def check_functions(
    get_model: Callable[..., Any],
    get_dataloader: Callable[..., Any],
    loss_function: Callable[..., Any] | None,
    loss_weight: Callable[..., Any] | None,
    training_step: Callable[..., Any] | None,
) -> None:
    """Raise `TypeError` for arguments that aren't functions, `ValueError` for two losses."""
    check_callable("get_model", get_model, "a function that returns the torch.nn.Module")
    _check_unmade(get_model)
    check_callable("get_dataloader", get_dataloader, "a function that returns the DataLoader")
    if loss_function is not None:
        check_callable("loss_function", loss_function, "a function of (outputs, labels)")
        _check_untrained(loss_function)
    if loss_weight is not None:
        check_callable("loss_weight", loss_weight, "a function of a batch")
    if training_step is not None:
        check_callable("training_step", training_step, "a function of (model, batch)")
        if loss_function is not None:
            raise ValueError(
                "both loss_function and training_step are given; training_step computes the "
                "loss by itself, so loss_function must be None"
            )


def _check_unmade(get_model: object) -> None:
    """Raise `TypeError` for a model in the place of the function that makes it.

    A module can be called too, so a worker would call its forward. A module's class is fine.
    """
    # Any module has this method; torch need not be imported for a look.
    if callable(getattr(get_model, "named_parameters", None)) and not isinstance(get_model, type):
        raise TypeError(
            f"get_model is a {type(get_model).__name__}, a model; it must be a function that "
            "returns the torch.nn.Module, since each worker makes a model of its own"
        )


def _check_untrained(loss_function: object) -> None:
    """Raise `ValueError` for a loss with parameters, and `TypeError` for a class of losses."""
    of_partial = getattr(loss_function, "func", loss_function)
    if isinstance(of_partial, type):
        raise TypeError(
            f"loss_function is the class {of_partial.__name__}; it must be a function of (outputs, "
            f"labels), such as {of_partial.__name__}()"
        )
    # Any module has this method; torch need not be imported for a look.
    named = getattr(of_partial, "named_parameters", None)
    trained = [name for name, one in named() if one.requires_grad] if callable(named) else []
    if trained:
        raise ValueError(
            f"loss_function has parameters to train (`{trained[0]}`), and Saturn trains and saves "
            "those of the model; have get_model return a module that holds them, and compute this "
            "loss in its forward or by training_step"
        )


def check_hparams(hparams: object) -> None:
    """Raise `TypeError` for anything but hyper-parameters."""
    if not isinstance(hparams, HParams):
        raise TypeError(
            f"hparams is a {type(hparams).__name__}; it must be saturn.HParams(lr=…, …)"
        )


def check_values(hparams: object, hints: object, seed: object) -> None:
    """Raise `TypeError` or `ValueError` for hyper-parameters, hints or a seed of another kind."""
    check_hparams(hparams)
    if hints is not None and not isinstance(hints, Mapping):
        raise TypeError(f"hints is a {type(hints).__name__}; it must be a mapping")
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**63:
        raise ValueError(f"seed is {seed!r}; it must be an integer from 0 to 2**63 - 1")


def check_beginning(start_from: object, continue_from: object) -> None:
    """Raise `ValueError` for a task that would begin in two ways."""
    if start_from is not None and continue_from is not None:
        raise ValueError(
            "both start_from and continue_from are given; a task that continues another has "
            "its weights, so leave start_from out"
        )


def checked_name(name: object) -> str:
    """The name, or `task-<n>` without one. Raises `ValueError`."""
    if name is None:
        return f"task-{next(_numbers)}"
    if not isinstance(name, str) or not name:
        raise ValueError(f"name is {name!r}; it must be a non-empty string")
    if name in (".", ".."):
        raise ValueError(f"name is {name!r}, which is no name in an address; give another")
    if name.startswith("-"):
        raise ValueError(f"name is {name!r}, which a command takes for an option; give another")
    return name


def checked_parameters(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values that distinguish a task, by name. Raises `TypeError` for what no report can hold."""
    for name, value in values.items():
        if not isinstance(name, str) or not _is_plain(value):
            raise TypeError(
                f"parameters holds {name!r}: {value!r}; it must hold numbers, texts, true or "
                "false, by name"
            )
    return dict(values)


def parameters_of(hparams: HParams) -> dict[str, Any]:
    """Hyper-parameters that distinguish tasks: learning rate, and the model's plain keywords."""
    of_model = {name: value for name, value in hparams.kwargs.items() if _is_plain(value)}
    of_model.pop("lr", None)  # the optimizer's learning rate is shown instead
    return {"lr": hparams.lr, **of_model}


def _is_plain(value: object) -> bool:
    """Whether a report can hold the value."""
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, bool | int | str)


def gpu_counts(gpu_range: Iterable[int] | int | None) -> list[int] | None:
    """The device counts that a task allows, ascending; None: all. Raises `ValueError`."""
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
