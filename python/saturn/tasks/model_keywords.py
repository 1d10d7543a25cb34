"""Keywords of `HParams` that go to `get_model`, and those that were meant for something else.

A training option of another library is refused, even if `get_model` takes any keyword: most such
functions ignore keywords that they don't know, and the option would be lost without a word.
`HParams(model_kwargs=…)` says that a name is the model's own.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any

from saturn.tasks.definition import takes_keywords

_OF_OPTIMIZER = (
    "it is the optimizer's: say HParams(optimizer_cls=functools.partial(torch.optim.AdamW, "
    "{name}={value!r}))"
)
_OF_SCHEDULER = "it is a learning rate scheduler's: say HParams(lr_scheduler=…)"
_EPOCHS = "say HParams(epochs={value!r})"
_CLIPPING = "say HParams(max_grad_norm={value!r})"
#: Training options of other libraries, each with its place in Saturn.
_ELSEWHERE = {
    **dict.fromkeys(
        ("weight_decay", "betas", "eps", "momentum", "nesterov", "amsgrad", "fused", "foreach"),
        _OF_OPTIMIZER,
    ),
    **dict.fromkeys(("warmup_steps", "warmup_ratio", "lr_scheduler_type"), _OF_SCHEDULER),
    **dict.fromkeys(
        ("batch_size", "per_device_train_batch_size"),
        "it is the loader's, as get_dataloader makes it: a batch there is the batch of all devices",
    ),
    "learning_rate": "say HParams(lr={value!r})",
    **dict.fromkeys(("num_epochs", "num_train_epochs", "max_epochs"), _EPOCHS),
    "max_steps": "say HParams(steps={value!r})",
    "accumulate_grad_batches": "say HParams(gradient_accumulation_steps={value!r})",
    "optimizer": "say HParams(optimizer_cls=…), a class or a functools.partial of one",
    "scheduler": _OF_SCHEDULER,
    **dict.fromkeys(("grad_clip", "gradient_clip_val"), _CLIPPING),
    "bf16": 'say HParams(precision="bf16")',
    "fp16": 'say HParams(precision="fp16")',
    "seed": "say Task(seed={value!r})",
    "name": "say Task(name={value!r})",
}


def check_keywords(
    get_model: Callable[..., Any],
    given: Mapping[str, Any],
    known: Collection[str],
    of_model: Collection[str] = (),
) -> None:
    """Refuse keywords that `get_model` can't take, or that were meant for something else.

    `given` are all keywords for `get_model`. `of_model` are the names of those in `model_kwargs`,
    and `known` the names of the arguments of `HParams`. Raises `TypeError`, which says what was
    probably meant.
    """
    try:
        signature = inspect.signature(get_model)
    except (TypeError, ValueError):
        return  # a C function without a signature: only calling it shows what it takes
    takes_all = takes_keywords(signature, given)
    parameters = signature.parameters.values()
    taken = {
        one.name for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    }
    function = f"{getattr(get_model, '__name__', type(get_model).__name__)}{signature}"
    for name, value in given.items():
        if name in taken or (takes_all and (name in of_model or name not in _ELSEWHERE)):
            continue
        if name in of_model:
            raise TypeError(
                f"model_kwargs holds `{name}`, but {function} does not take it{_near(name, taken)}"
            )
        refusal, or_else = "does not take it", ""
        if takes_all:
            refusal = "takes it only as it takes any name"
            or_else = f"; or, if it is the model's, HParams(model_kwargs={{{name!r}: {value!r}}})"
        raise TypeError(
            f"HParams has no keyword `{name}`, so it would go to get_model, but {function} "
            f"{refusal}{meant(name, value, [*known, *taken])}{or_else}"
        )


def meant(name: str, value: Any, known: Iterable[str]) -> str:
    """What a keyword was probably meant for, as the end of a sentence; empty if nothing is near."""
    if (elsewhere := _ELSEWHERE.get(name)) is not None:
        return "; " + elsewhere.format(name=name, value=value)
    return _near(name, known)


def _near(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean `{close[0]}`?" if close else ""
