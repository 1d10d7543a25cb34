"""The optimizer's tensors on their way into a checkpoint and out of it, by unsplit names.

Loading makes room for what the checkpoint holds and has it read straight into there. The
alternative, DCP's own, is to have a fresh optimizer take a step on zero gradients and read into
the state that this makes: twice the time, and the memory of another set of gradients. It is left
for what can't be known in advance: a split parameter with state of another shape than its own, and
state that is a mapping.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_optimizer_state_dict,
)
from torch.distributed.tensor import DTensor

#: One flat key for each tensor, so layouts that hold different parameters can share a checkpoint.
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
#: Prefix of the optimizer's tensors among its flat keys; the others are group settings.
_STATE = "state."


def tensors_of(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state by flat key, without its group settings."""
    if not optimizer.state:
        return {}  # asked for it, DCP would have the optimizer take a step to make some
    state = get_optimizer_state_dict(module, optimizer, options=OPTIONS)
    return {key: value for key, value in state.items() if key.startswith(_STATE)}


class OptimizerRoom:
    """Room for the state of a fresh optimizer, as a checkpoint holds it.

    `saved` is DCP's index of the checkpoint's optimizer: by flat key, what each entry is. A
    parameter that had no gradient yet has no state there, and none after loading.
    """

    def __init__(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]
    ) -> None:
        self._module = module
        self._optimizer = optimizer
        self._names: dict[str, tuple[nn.Parameter, str]] = {}
        self._settings: dict[str, Any] | None = None
        parameters = {
            name: value
            for name, value in module.state_dict(keep_vars=True).items()
            if isinstance(value, nn.Parameter)
        }
        for key in saved:
            if (name := _owner(key, parameters)) is not None:
                self._names[key] = parameters[name], key.removeprefix(f"{_STATE}{name}.")
        #: To be read into, by flat key.
        self.state: dict[str, Any] = {}
        try:
            for key, (parameter, entry) in self._names.items():
                if "." in entry:  # a mapping within the state
                    raise _UnknownLayoutError
                self.state[key] = _room(parameter, saved[key])
        except _UnknownLayoutError:
            state = get_optimizer_state_dict(module, optimizer, options=OPTIONS)
            self._settings = {k: v for k, v in state.items() if not k.startswith(_STATE)}
            self.state = {key: state[key] for key in self._names}

    def fill(self) -> None:
        """Give what was read into `state` to the optimizer."""
        if self._settings is not None:
            held = {parameter for parameter, _ in self._names.values()}
            for parameter in set(self._optimizer.state) - held:
                del self._optimizer.state[parameter]
            set_optimizer_state_dict(
                self._module,
                self._optimizer,
                optim_state_dict={**self._settings, **self.state},
                options=OPTIONS,
            )
        elif self.state:
            numbers: dict[nn.Parameter, int] = {}
            for group in self._optimizer.param_groups:
                for parameter in group["params"]:
                    numbers[parameter] = len(numbers)
            by_number: dict[int, dict[str, Any]] = {}
            for key, (parameter, entry) in self._names.items():
                by_number.setdefault(numbers[parameter], {})[entry] = self.state[key]
            groups = self._optimizer.state_dict()["param_groups"]
            self._optimizer.load_state_dict({"state": by_number, "param_groups": groups})


class _UnknownLayoutError(Exception):
    """How a piece of state is split can't be told from its parameter."""


def _room(parameter: nn.Parameter, entry: Any) -> Any:
    if not isinstance(entry, TensorStorageMetadata):
        return None  # no tensor: it is read as a whole
    dtype = entry.properties.dtype
    if entry.size == parameter.shape:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    if not entry.size:
        return torch.empty((), dtype=dtype)
    if isinstance(parameter, DTensor):
        raise _UnknownLayoutError
    return torch.empty(entry.size, dtype=dtype, device=parameter.device)


def _owner(key: str, parameters: Mapping[str, nn.Parameter]) -> str | None:
    """The parameter that an entry of the state belongs to, where this rank holds it."""
    for prefix in _prefixes(key.removeprefix(_STATE)):
        if prefix in parameters:
            return prefix
    return None


def _prefixes(key: str) -> Iterator[str]:
    """`a.b.c` → `a.b`, `a`: the names of whatever an entry belongs to."""
    while key:
        key = key.rpartition(".")[0]
        yield key
