"""Which methods of a LightningModule or LightningDataModule Saturn calls, and which it refuses.

Every method that a class overrides belongs to one of four kinds: Saturn calls it, it doesn't affect
training, the user has said to ignore it, or the module is refused. None is dropped silently.
Lightning's methods are read from the base class itself, so hooks of later versions are refused too.

This module does not import Lightning; it finds Lightning's base class among an object's base
classes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from saturn.errors import InvalidInput

MODULE, DATA_MODULE = "LightningModule", "LightningDataModule"
_PACKAGES = ("lightning", "pytorch_lightning")

#: Methods that Saturn calls as Lightning's loop does.
_CALLED = {
    MODULE: {
        *("forward", "training_step", "configure_optimizers", "configure_model", "setup"),
        *("validation_step", "on_validation_epoch_start", "on_validation_epoch_end"),
    },
    DATA_MODULE: {"prepare_data", "setup", "train_dataloader", "val_dataloader"},
}
#: Methods that `fit` does not call, or that don't change it.
_WITHOUT_EFFECT = {
    *("test_step", "predict_step", "test_dataloader", "predict_dataloader", "teardown"),
    *("to_onnx", "to_tensorrt", "to_torchscript", "load_from_checkpoint", "print"),
    *("example_input_array", "freeze", "unfreeze", "hparams", "from_datasets"),
}
_WITHOUT_EFFECT_PREFIXES = ("on_test_", "on_predict_", "_")
#: Methods that Saturn replaces in each module that it makes.
_REPLACED = ("log", "log_dict")
_REASONS = {
    "backward": "Saturn takes the backward itself",
    "configure_callbacks": "Saturn calls no callbacks of Lightning's",
    "configure_gradient_clipping": "say HParams(max_grad_norm=…)",
    "lr_scheduler_step": "Saturn steps the scheduler itself",
    "optimizer_step": "Saturn steps the optimizer itself",
    "prepare_data": "put it into a LightningDataModule, and let make_data return that",
    "train_dataloader": "let make_data return the loader, or a LightningDataModule",
    "transfer_batch_to_device": "Saturn moves batches itself",
    "val_dataloader": "put it into a LightningDataModule, and let make_data return that",
}
_NOT_CALLED = "Saturn does not call it"


def base_of(thing: Any, name: str) -> type[Any] | None:
    """Lightning's class of this name among the base classes of `thing`; None if there is none."""
    for cls in type(thing).__mro__:
        if cls.__name__ == name and cls.__module__.partition(".")[0] in _PACKAGES:
            return cls
    return None


def is_overridden(thing: Any, method: str, kind: str) -> bool:
    """Whether a module, or a data module, overrides `method`."""
    base = base_of(thing, kind)
    if method in vars(thing) and method not in _REPLACED:
        return True
    return getattr(type(thing), method, None) is not getattr(base, method, None)


def check(thing: Any, kind: str, *, ignored: Collection[str] = ()) -> None:
    """Raise `InvalidInput` if `thing` overrides a method that Saturn does not call."""
    overridden = set(_overridden(thing, kind))
    reasons = [
        f"{type(thing).__name__} overrides `{name}`: {_REASONS.get(name, _NOT_CALLED)}"
        for name in sorted(overridden - _CALLED[kind] - set(ignored))
    ]
    if reasons:
        raise InvalidInput(
            "Saturn can't train this module as Lightning would: "
            + "; ".join(reasons)
            + ". A method that the training can do without may be named in "
            'Task.from_lightning(…, ignored_hooks=["…"])'
        )


def check_ignored(things: Collection[tuple[Any, str]], ignored: Collection[str]) -> None:
    """Raise `InvalidInput` if an ignored name is no method that any of `things` overrides."""
    known = {name for thing, kind in things for name in set(_overridden(thing, kind))}
    for name in ignored:
        if name not in known:
            raise InvalidInput(
                f"ignored_hooks names `{name}`, which neither the module nor the data module "
                "overrides"
            )


def _overridden(thing: Any, kind: str) -> Iterator[str]:
    from torch import nn

    base = base_of(thing, kind)
    assert base is not None  # the callers have checked
    for cls in base.__mro__:
        if cls in (nn.Module, object):
            return
        for name in vars(cls):
            is_hook = callable(getattr(base, name, None)) or isinstance(vars(cls)[name], property)
            if not is_hook or name in _WITHOUT_EFFECT or name.startswith(_WITHOUT_EFFECT_PREFIXES):
                continue
            if is_overridden(thing, name, kind):
                yield name
