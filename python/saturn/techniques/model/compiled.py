"""The knob `compile`: the repeated layers are compiled by `torch.compile`, each by itself.

Layers of one kind share what is compiled, so the time that takes doesn't grow with their number;
names of modules and parameters stay as they are. The knob is true, or the name of a back end of
torch's to compile by instead of Inductor. A model without repeated layers is compiled as a
whole. Compiling happens in the first steps of a launch, whose time is no part of a step's.

What was compiled is kept in the run's directory, for later launches; torch's own place, in a
temporary directory that all users share, could be filled by others.

It is measured where the task's hint `compile` is true, beside the same uncompiled: what it gains
differs from model to model, and each launch takes the time to compile once more. Compiled layers
add in another order; dropout draws the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from saturn.rank.exceptions import NotApplicable, TaskError
from saturn.techniques.interface import Knobs, Setting
from saturn.techniques.model.layers import repeated_layers

if TYPE_CHECKING:
    from torch import nn

COMPILE = "compile"


def with_compiled(knob_sets: Sequence[Knobs], setting: Setting) -> list[Knobs]:
    """`knob_sets`, and the first of them again, compiled, where the task's hint asks for it."""
    hint = setting.hints.get(COMPILE, False)
    if not isinstance(hint, bool):
        raise TaskError(f"hints['compile'] is {hint!r}; it must be True or False")
    return [*knob_sets, {**knob_sets[0], COMPILE: True}] if hint else list(knob_sets)


def compile_layers(module: nn.Module, knobs: Knobs) -> None:
    """Have the layers of `module` compiled as they first run, where the knob says so.

    Before `recompute` and sharding. Raises `NotApplicable` where torch has no such back end.
    """
    chosen = knobs.get(COMPILE, False)
    if not chosen:
        return
    backend = "inductor" if chosen is True else str(chosen)
    # Here, not above: these imports take a second, and most ranks compile nothing.
    import torch
    import torch._dynamo
    import torch._inductor.config

    # As eager: the same numbers for dropout, whatever is fused.
    torch._inductor.config.fallback_random = True
    # Compiling in this process alone: ranks share the machine, and leave no helpers behind.
    torch._inductor.config.compile_threads = 1
    # Many lengths of batches are to be one shape that varies, not as many programs.
    torch._dynamo.config.assume_static_by_default = True
    torch._dynamo.config.automatic_dynamic_shapes = True
    try:
        torch._dynamo.lookup_backend(backend)
    except torch._dynamo.exc.InvalidBackend as error:
        raise NotApplicable(f"compile: {error}") from error
    for layer in repeated_layers(module) or [module]:
        # Not the module: its hooks, which gather parameters, stay outside, and so does running a
        # layer twice.
        layer.forward = torch.compile(layer.forward, backend=backend)
