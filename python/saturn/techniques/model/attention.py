"""The knob `attention`: which back end computes the attention of a transformers model.

The techniques that run the model's own forward share it. These back ends are tried:

* with the task's hint `attention`, a name or a list of names: those, and no others;
* without a hint: the model's own, and on a GPU those that are installed and may be faster: flash
  attention (under bf16 or fp16), xFormers. On a CPU slot no other is tried;
* if the task has chosen a back end itself: only that. It counts as chosen if it differs from
  transformers' default (`sdpa` if the model has it, else `eager`). A task that wants the default
  alone says so by the hint.

So a task's choice is never overridden, and most trials measure no more knob sets than without the
knob. Back ends compute the same up to rounding.
"""

from __future__ import annotations

import copy
import importlib.util
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from saturn.rank.exceptions import TaskError
from saturn.tasks.definition import FLOAT32
from saturn.techniques.interface import Knobs, NotApplicable, Setting
from saturn.techniques.model import xformers_attention

ATTENTION = "attention"
#: transformers' names of the back ends that a hint may name.
BACK_ENDS = ("sdpa", "flash_attention_2", "flash_attention_3", "xformers", "eager")
#: Back ends that may be faster on a GPU, with the package and compute capability that they need.
_ON_GPUS = {
    "flash_attention_2": ("flash_attn", (8, 0)),
    "flash_attention_3": ("flash_attn_interface", (9, 0)),
    "xformers": ("xformers", (7, 0)),
}


def with_back_ends(knob_sets: Iterable[Knobs], module: nn.Module, setting: Setting) -> list[Knobs]:
    """`knob_sets`, and the first of them again with each other back end worth measuring.

    Raises `TaskError` if the hint names an unknown back end.
    """
    first, *others = _choices(module, setting)
    sets = [_with(knobs, first) for knobs in knob_sets]
    return [*sets[:1], *(_with(sets[0], other) for other in others), *sets[1:]] if sets else []


def set_back_end(module: nn.Module, knobs: Knobs) -> None:
    """Have `module` compute its attention as the knob says; without the knob, change nothing.

    Raises `NotApplicable` if that is impossible.
    """
    name = knobs.get(ATTENTION)
    if name is None:
        return
    models = _models(module)
    if not models:
        raise NotApplicable(f"attention `{name}`: only models of transformers let it be set")
    if name == xformers_attention.NAME and _is_installed("xformers"):
        xformers_attention.register()
    for model in models:
        _own_configs(model)
        try:
            model.set_attn_implementation(name)
        except (ValueError, ImportError) as error:
            raise NotApplicable(f"attention `{name}`: {error}") from error
        if model.config._attn_implementation != name:
            raise NotApplicable(
                f"attention `{name}`: {type(model).__name__} does not let it be set"
            )


def _own_configs(model: nn.Module) -> None:
    """Give `model` its own copies of configurations: a task may build all models from one object.

    Without a copy, a knob would reach the models of the next knob set too.
    """
    copies: dict[int, Any] = {}  # parts that share a configuration share its copy
    for part in model.modules():
        for name, value in list(vars(part).items()):
            if hasattr(value, "_attn_implementation") and not isinstance(value, nn.Module):
                vars(part)[name] = copy.deepcopy(value, copies)


def _choices(module: nn.Module, setting: Setting) -> Sequence[str | None]:
    """Back ends to measure, the first for every knob set; None is the model's own."""
    hint = setting.hints.get(ATTENTION)
    if hint is not None:
        names = [hint] if isinstance(hint, str) else list(hint)
        unknown = [name for name in names if name not in BACK_ENDS]
        if unknown or not names:
            raise TaskError(
                f"hints['attention'] names `{unknown[0] if unknown else names}`; it must be one or "
                f"a list of {', '.join(BACK_ENDS)}"
            )
        # If none can run, trying one shows the reason.
        return [name for name in names if _can_run(name, module, setting)] or names[:1]
    models = _models(module)
    if not models or any(_is_chosen(model) for model in models):
        return [None]
    if setting.device_kind == "cpu":
        return [None]
    return [None, *(name for name in _ON_GPUS if _can_run(name, module, setting))]


def _can_run(name: str, module: nn.Module, setting: Setting) -> bool:
    models = _models(module)
    if name == "eager" or not models:
        return bool(models)
    if name == "sdpa":
        return all(getattr(model, "_supports_sdpa", False) for model in models)
    package, capability = _ON_GPUS[name]
    if (
        setting.device_kind == "cpu"
        or not _is_installed(package)
        # An inspection sees no GPU, so all possible back ends are listed, and a trial finds out.
        or (torch.cuda.is_available() and torch.cuda.get_device_capability() < capability)
    ):
        return False
    if name == xformers_attention.NAME:
        return all(getattr(model, "_supports_sdpa", False) for model in models)
    # Flash attention has no float32 kernel.
    is_half = setting.precision != FLOAT32 or _is_half(module)
    return is_half and all(getattr(model, "_supports_flash_attn", False) for model in models)


def _is_installed(package: str) -> bool:
    return package in sys.modules or importlib.util.find_spec(package) is not None


def _models(module: nn.Module) -> list[Any]:
    """The outermost models of transformers in `module`."""
    found: list[Any] = []
    inside: set[int] = set()
    for part in module.modules():
        if id(part) not in inside and hasattr(part, "set_attn_implementation"):
            found.append(part)
            inside |= {id(inner) for inner in part.modules()}
    return found


def _is_chosen(model: Any) -> bool:
    by_itself = "sdpa" if getattr(model, "_supports_sdpa", False) else "eager"
    return model.config._attn_implementation != by_itself  # type: ignore[no-any-return]


def _is_half(module: nn.Module) -> bool:
    return all(p.dtype in (torch.float16, torch.bfloat16) for p in module.parameters())


def _with(knobs: Knobs, name: str | None) -> Knobs:
    return knobs if name is None else {**knobs, ATTENTION: name}
