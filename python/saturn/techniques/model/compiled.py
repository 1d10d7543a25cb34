"""The knob `compile`: each repeated layer is compiled by `torch.compile`.

Layers of one kind share their compiled code, so the time to compile doesn't grow with their number.
Names of modules and parameters don't change. The knob is true, or the name of a torch back end that
replaces Inductor. A model without repeated layers is compiled as a whole. Compiling happens in the
first steps of a launch, whose time is not counted as a step's.

Compiled code is kept in the run's directory for later launches. torch's own place is a temporary
directory that all users share, so others could write to it.

If the task's hint `compile` is true, compiled layers are measured beside uncompiled ones. The gain
differs between models, and each launch pays for compiling again. Compiled layers add in another
order; dropout draws the same numbers.
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
    """`knob_sets`, and the first of them again, compiled, if the task's hint asks for it."""
    hint = setting.hints.get(COMPILE, False)
    if not isinstance(hint, bool):
        raise TaskError(f"hints['compile'] is {hint!r}; it must be True or False")
    return [*knob_sets, {**knob_sets[0], COMPILE: True}] if hint else list(knob_sets)


def compile_layers(module: nn.Module, knobs: Knobs) -> None:
    """Have the layers of `module` compiled when they first run, if the knob says so.

    To be called before `recompute` and sharding. Raises `NotApplicable` if torch lacks the back
    end.
    """
    chosen = knobs.get(COMPILE, False)
    if not chosen:
        return
    backend = "inductor" if chosen is True else str(chosen)
    # Imported here: these imports take a second, and most ranks compile nothing.
    import torch
    import torch._dynamo
    import torch._inductor.config

    # Dropout draws the same numbers as uncompiled code, whatever is fused.
    torch._inductor.config.fallback_random = True
    # Compile in this process alone: ranks share the machine, and must leave no helpers behind.
    torch._inductor.config.compile_threads = 1
    # Batches of many lengths share one program with a variable shape, instead of one for each.
    torch._dynamo.config.assume_static_by_default = True
    torch._dynamo.config.automatic_dynamic_shapes = True
    try:
        torch._dynamo.lookup_backend(backend)
    except torch._dynamo.exc.InvalidBackend as error:
        raise NotApplicable(f"compile: {error}") from error
    for layer in repeated_layers(module) or [module]:
        # Only the forward is compiled. The module's hooks, which gather parameters, stay outside;
        # so does recomputation.
        layer.forward = torch.compile(layer.forward, backend=backend)
