"""Activation checkpointing: layers keep only their inputs, and run again in the backward pass.

This is the knob `activation_checkpointing` of `ddp`, `fsdp`, `tensor` and `tensor+fsdp`. `offload`
runs layers twice too and has the same conditions. A layer computes the same both times: torch
restores the autocast state, and this module the random streams, Python's and numpy's included.

Layers are changed in place, by a `forward` of their own, so that names and module hooks stay. State
that a layer changes besides its outputs would change twice. Batch norm changes state (see
`reason_against`). So does a cache of keys and values, which models don't need in training (see
`without_cache`). Other changed buffers are found when the layer runs (see `KeepsState`).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.utils.checkpoint import checkpoint

from saturn.data import drawing
from saturn.data.seeds import RandomState
from saturn.techniques.interface import NotApplicable
from saturn.techniques.model.buffers import Buffers
from saturn.techniques.model.changed_parameters import ForwardWatch
from saturn.techniques.model.layers import repeated_layers

ACTIVATION_CHECKPOINTING = "activation_checkpointing"


def reason_against(module: nn.Module) -> str | None:
    """Why the repeated layers of `module` can't run twice a step; None if they can."""
    layers = repeated_layers(module)
    if not layers:
        return "no list of repeated layers (a ModuleList or Sequential) was found in the model"
    for layer in layers:
        for inner in layer.modules():
            # Instance norm, the other norm, sees one sample and keeps statistics only if asked to.
            is_norm = isinstance(inner, _NormBase) and inner.training
            if is_norm and (isinstance(inner, _BatchNorm) or inner.track_running_stats):
                return (
                    "its layers hold batch norm in training mode, whose statistics would count "
                    "each batch twice if a layer ran twice"
                )
    return None


def checkpoint_layers(module: nn.Module, device: torch.device) -> None:
    """Make each repeated layer of `module` drop its activations and recompute them.

    To be called before sharding. Raises `NotApplicable` if the model can't be recomputed.
    """
    if (reason := reason_against(module)) is not None:
        raise NotApplicable(f"no activation checkpointing: {reason}")
    without_cache(module)
    for layer in repeated_layers(module):
        layer.forward = _checkpointed(layer, device)


def without_cache(module: nn.Module) -> None:
    """Tell transformers' models not to keep keys and values, as they do by default."""
    for part in module.modules():
        config: Any = getattr(part, "config", None)
        if getattr(config, "use_cache", False) is True:
            config.use_cache = False


def refuse_caches(values: Any) -> None:
    """Raise `NotApplicable` if a layer's arguments contain a cache, which the layer would fill."""
    caches = sys.modules.get("transformers.cache_utils")
    if caches is not None and any(isinstance(value, caches.Cache) for value in values):
        raise NotApplicable(
            "the model is called with use_cache=True, and a layer that runs twice would fill the "
            "cache twice; leave use_cache out of the batch"
        )


class KeepsState:
    """Checks that a layer that runs twice a step changes no buffer and no parameter."""

    def __init__(self, layer: nn.Module) -> None:
        self._layer = layer
        self._has_run = False
        self._watch = ForwardWatch()
        self._has_generators = bool(drawing.generators_of(layer))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """The context of the layer's first run in a step; raises `NotApplicable` at its end."""
        before = self._versions()
        # Values are compared once, which waits for the device: a change by `.data` has no version.
        kept = Buffers(self._layer) if before and not self._has_run else None
        self._has_run = True
        if self._has_generators:
            raise NotApplicable(
                "a layer has a random generator of its own, which would draw other numbers when "
                "the layer runs again in the backward pass"
            )
        self._watch.begin(self._layer.named_parameters())
        yield
        if (name := self._watch.changed()) is not None:
            raise NotApplicable(
                f"a layer changes its parameter `{name}` in its forward, which would happen twice: "
                "it runs again in the backward pass"
            )
        changed = list(kept.changed()) if kept is not None else []
        if changed := changed or [n for n, v in self._versions().items() if before.get(n) != v]:
            raise NotApplicable(
                f"a layer changes its buffer `{changed[0]}`, which would happen twice: it runs "
                "again in the backward pass"
            )

    def _versions(self) -> dict[str, tuple[int, int]]:
        return {name: (id(buffer), buffer._version) for name, buffer in self._layer.named_buffers()}


def _checkpointed(layer: nn.Module, device: torch.device) -> Callable[..., Any]:
    forward, buffers = layer.forward, KeepsState(layer)

    def forward_with_checkpoint(*args: Any, **kwargs: Any) -> Any:
        refuse_caches([*args, *kwargs.values()])

        def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
            return nullcontext(), RandomState.now(device).again()

        # Without gradients, as in an evaluation, the layer runs only once.
        with buffers.watched() if torch.is_grad_enabled() else nullcontext():
            return checkpoint(
                *(forward, *args),
                use_reentrant=False,
                preserve_rng_state=False,
                context_fn=contexts,
                **kwargs,
            )

    return forward_with_checkpoint
