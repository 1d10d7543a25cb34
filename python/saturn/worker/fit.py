"""Which knob sets a technique would try, and which of them clearly can't fit a device.

A technique says how much memory its knobs need at least (`Technique.least_memory_bytes`). A knob
set that needs more than a device holds is not run; all others are measured. The question is asked
before anything is parallelised: by an inspection for the whole group, and by each trial for itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from saturn.plain.sizes import size_text
from saturn.tasks.definition import TaskDefinition
from saturn.techniques.interface import Knobs, Setting, Technique
from saturn.training.optimizer import build_optimizer

#: The length of a probe tensor's sides, by its number of dimensions. Probes are large, because some
#: optimizers compress only the state of large tensors.
_PROBE_SIDES = {0: 1, 1: 16384, 2: 128, 3: 32, 4: 16}


def rungs_of(technique: Technique, module: nn.Module, setting: Setting) -> list[list[Knobs]]:
    """Knob sets to measure, in rungs; a later rung is for when all before it ran out of memory."""
    first = list(technique.knob_sets(module, setting))
    if not first:
        raise ValueError(f"{type(technique).__name__}: knob_sets gave none; {{}} is one")
    return [first, *(list(rung) for rung in technique.thriftier_knob_sets(module, setting))]


class Fit:
    """Says which knob sets are worth running."""

    def __init__(
        self,
        technique: Technique,
        module: nn.Module,
        setting: Setting,
        knob_sets: Iterable[Knobs],
    ) -> None:
        self._available = setting.device_memory_bytes
        #: How many bytes each knob set needs at least.
        self._least = {
            _key(knobs): technique.least_memory_bytes(module, setting, knobs) for knobs in knob_sets
        }
        #: The knob sets that `why_not` has rejected, with its reasons.
        self.left_out: list[tuple[Knobs, str]] = []

    @property
    def least_bytes(self) -> int | None:
        """How much the thriftiest knob set needs at least; None if some set's need is unknown."""
        known = [least for least in self._least.values() if least is not None]
        return min(known) if len(known) == len(self._least) else None

    def why_none(self) -> str | None:
        """Why no knob set can fit, in words; None if some may."""
        return self._reason(self.least_bytes)

    def why_not(self, knobs: Knobs) -> str | None:
        """Why these knobs can't fit, in words, noted in `left_out`; None if they may fit."""
        reason = self._reason(self._least.get(_key(knobs)))
        if reason is not None:
            self.left_out.append((knobs, reason))
        return reason

    def _reason(self, least: int | None) -> str | None:
        if least is None or self._available is None or least <= self._available:
            return None
        return (
            f"needs at least {size_text(least)} of {size_text(self._available)} a device: "
            "parameters, gradients and optimizer state; not tried"
        )


def optimizer_state_ratio(
    definition: TaskDefinition, module: nn.Module, device: torch.device
) -> float:
    """Bytes of optimizer state for each byte of trainable parameters: a lower bound.

    The task's own optimizer takes one step on small probe tensors, one for each kind of parameter
    of `module`. Only state of the parameter's shape is counted, because it grows with the
    parameter; factors and counters don't. If the optimizer can't step on probes, the answer is 0.
    """
    kinds: dict[tuple[int, torch.dtype], int] = {}  # bytes of parameters of each kind
    for parameter in module.parameters():
        if parameter.requires_grad:
            kind = (parameter.dim(), parameter.dtype)
            kinds[kind] = kinds.get(kind, 0) + parameter.numel() * parameter.element_size()
    total = sum(kinds.values())
    if total == 0:
        return 0.0
    probes = _Probes(kinds, device)
    try:
        optimizer = build_optimizer(definition, probes, device)
        for probe in probes.parameters():
            probe.grad = torch.full_like(probe, 1e-3)
        optimizer.step()
    # The optimizer is a stranger's code in an unusual place; training itself will show its errors.
    except Exception:
        return 0.0
    state_bytes = sum(
        size * _state_share(optimizer.state.get(probe, {}), probe)
        for size, probe in zip(kinds.values(), probes.parameters(), strict=True)
    )
    return state_bytes / total


class _Probes(nn.Module):
    """One small probe tensor for each kind of parameter: its number of dimensions and its dtype."""

    def __init__(self, kinds: Iterable[tuple[int, torch.dtype]], device: torch.device) -> None:
        super().__init__()
        for number, (dims, dtype) in enumerate(kinds):
            shape = [_PROBE_SIDES.get(dims, 8)] * dims
            probe = nn.Parameter(torch.full(shape, 0.1, dtype=dtype, device=device))
            self.register_parameter(f"probe_{number}", probe)


def _state_share(state: Mapping[str, Any], probe: torch.Tensor) -> float:
    """Bytes of optimizer state for each byte of one parameter."""
    size: int = sum(
        value.numel() * value.element_size()
        for value in state.values()
        # A subclass of Tensor may hold less than its shape says.
        if type(value) in (torch.Tensor, nn.Parameter)
        and value.shape == probe.shape
        and value.device == probe.device
    )
    return size / (probe.numel() * probe.element_size())


def _key(knobs: Knobs) -> str:
    return json.dumps(knobs, sort_keys=True, default=repr)
