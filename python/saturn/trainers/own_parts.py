"""What the user's own code in a trainer decides, as a part of its profile key.

Tasks with equal keys share trials, and the finding whether their batches may be sliced. So the key
needs everything in which two trainers of one class may differ: attributes that the user's class
sets, other models that the loss calls, and the settings of the collator.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Mapping
from typing import Any

from torch import nn

from saturn.trainers.refusals import is_of

#: Packages whose trainers' own attributes follow from their arguments, which the key has.
_LIBRARIES = ("transformers", "trl")
_PLAIN = (bool, int, float, str, bytes, type(None))


def of_trainer(trainer: Any, model: nn.Module) -> dict[str, Any]:
    """The attributes of a trainer that its user's class sets, and the models beside `model`."""
    known = _set_by_libraries(type(trainer).__mro__)
    found = {}
    for name, value in sorted(vars(trainer).items()):
        is_other_model = isinstance(value, nn.Module) and value is not model
        if is_other_model or name not in known:
            found[name] = described(value)
    return found


def described(value: Any) -> Any:
    """A value's own part: functions by their code, modules by their shapes, others by settings."""
    if isinstance(value, _PLAIN) or _is_function(value):
        return value
    if isinstance(value, nn.Module):
        shapes = [(name, tuple(one.shape), str(one.dtype)) for name, one in _tensors(value)]
        return [type(part) for part in value.modules()], shapes
    if isinstance(value, list | tuple):
        return [described(each) for each in value]
    if isinstance(value, Mapping):
        return [(described(key), described(each)) for key, each in value.items()]
    settings = vars(value) if hasattr(value, "__dict__") else {}
    plain = {
        name: setting
        for name, setting in sorted(settings.items())
        if isinstance(setting, _PLAIN) or _is_function(setting)
    }
    return type(value), plain


def _tensors(module: nn.Module) -> list[tuple[str, Any]]:
    return [*module.named_parameters(), *module.named_buffers()]


def _is_function(value: Any) -> bool:
    if isinstance(value, types.MethodType):
        # A method of the trainer itself would bring all of the trainer along.
        return isinstance(value.__self__, type)
    return isinstance(value, types.FunctionType | types.BuiltinFunctionType | functools.partial)


@functools.lru_cache(maxsize=64)
def _set_by_libraries(classes: tuple[type, ...]) -> frozenset[str]:
    """Names of attributes that the libraries' own classes, of these, set on a trainer."""
    functions = (
        getattr(function, "__wrapped__", function)
        for each in classes
        if any(is_of(each, library) for library in _LIBRARIES)
        for function in vars(each).values()
    )
    return frozenset(
        str(instruction.argval)
        for function in functions
        if isinstance(function, types.FunctionType)
        for instruction in dis.get_instructions(function)
        if instruction.opname == "STORE_ATTR"
    )
