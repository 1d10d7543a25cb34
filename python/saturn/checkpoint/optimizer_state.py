"""Put the optimizer's tensors into a checkpoint and read them back, by unsplit names.

Loading allocates tensors for what the checkpoint holds, and has it read straight into them. DCP's
own way is slower: a fresh optimizer takes a step on zero gradients, and the state that this makes
is read into. That takes twice the time, and the memory of another set of gradients. It is still
used if a layout can't be known in advance: if a split parameter has state of another shape than
its own, or if state is a mapping.
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

from saturn.checkpoint.kept import saved_name

#: One flat key for each tensor, so that layouts with different parameters share a checkpoint.
OPTIONS = StateDictOptions(flatten_optimizer_state_dict=True)
#: Prefix of tensors among the optimizer's flat keys; keys without it are group settings.
_STATE = "state."


def tensors_of(module: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    """The optimizer's state by flat key, without its group settings."""
    if not optimizer.state:
        return {}  # if asked, DCP would have the optimizer take a step to make state
    state = get_optimizer_state_dict(module, optimizer, options=OPTIONS)
    return {key: value for key, value in state.items() if key.startswith(_STATE)}


class OptimizerRoom:
    """Tensors for the state of a fresh optimizer, in the layout of a checkpoint.

    `saved` is DCP's index of the checkpoint's optimizer: the kind of each entry, by flat key. A
    parameter that had no gradient before the save has no state there, and none after loading.
    """

    def __init__(
        self, module: nn.Module, optimizer: torch.optim.Optimizer, saved: Mapping[str, Any]
    ) -> None:
        self._module = module
        self._optimizer = optimizer
        self._names: dict[str, tuple[nn.Parameter, str]] = {}
        self._settings: dict[str, Any] | None = None
        trained = {value for group in optimizer.param_groups for value in group["params"]}
        # A weight that trained before the save may be frozen now.
        parameters = {
            saved_name(name): value
            for name, value in module.state_dict(keep_vars=True).items()
            if isinstance(value, nn.Parameter) and value in trained
        }
        for key in saved:
            if (name := _owner(key, parameters)) is not None:
                self._names[key] = parameters[name], key.removeprefix(f"{_STATE}{name}.")
        #: The tensors to read into, by flat key.
        self.state: dict[str, Any] = {}
        try:
            for key, (parameter, entry) in self._names.items():
                if "." in entry:  # the state contains a mapping
                    raise _UnknownLayoutError
                self.state[key] = _room(parameter, saved[key])
        except _UnknownLayoutError:
            state = get_optimizer_state_dict(module, optimizer, options=OPTIONS)
            self._settings = {k: v for k, v in state.items() if not k.startswith(_STATE)}
            self.state = {key: state[key] for key in self._names}

    def fill(self) -> None:
        """Give the optimizer the state that was read into `state`."""
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
        self._keep_types()

    def _keep_types(self) -> None:
        """Put back state that torch has converted to its parameter's type, and so has rounded.

        An optimizer may keep float32 for weights in bf16. One with a `load_state_dict` of its own
        may want another type.
        """
        if type(self._optimizer).load_state_dict is not torch.optim.Optimizer.load_state_dict:
            return
        for key, (parameter, entry) in self._names.items():
            state, read = self._optimizer.state[parameter], self.state[key]
            held = state.get(entry)
            if not isinstance(read, torch.Tensor) or not isinstance(held, torch.Tensor):
                continue
            if held.dtype != read.dtype and entry != "step":  # a count's place depends on the form
                state[entry] = read


class _UnknownLayoutError(Exception):
    """The parameter doesn't tell how a tensor of its state is split."""


def _room(parameter: nn.Parameter, entry: Any) -> Any:
    if not isinstance(entry, TensorStorageMetadata):
        return None  # the entry is no tensor, so it is read whole
    dtype = entry.properties.dtype
    if entry.size == parameter.shape:
        return torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    if not entry.size:
        return torch.empty((), dtype=dtype)
    if isinstance(parameter, DTensor):
        raise _UnknownLayoutError
    return torch.empty(entry.size, dtype=dtype, device=parameter.device)


def _owner(key: str, parameters: Mapping[str, nn.Parameter]) -> str | None:
    """The name of the parameter that a state's entry belongs to; None if this rank lacks it."""
    for prefix in _prefixes(key.removeprefix(_STATE)):
        if prefix in parameters:
            return prefix
    return None


def _prefixes(key: str) -> Iterator[str]:
    """`a.b.c` → `a.b`, `a`: the names of parameters that an entry may belong to."""
    while key:
        key = key.rpartition(".")[0]
        yield key
