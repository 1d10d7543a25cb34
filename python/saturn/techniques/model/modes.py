"""Put a model into eval mode for a while, and every part of it back into its own mode."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import nn


@contextmanager
def in_eval_mode(module: nn.Module) -> Iterator[None]:
    """Within this context, all parts of `module` are in eval mode.

    Modes are put back by `train`, as in a loop by hand. A part may have a `train` of its own that
    does more: layers of loralib merge their adapters in `eval()`, and only `train()` takes them
    apart again.
    """
    modes = [(part, part.training) for part in module.modules()]  # the whole comes first
    module.eval()
    try:
        yield
    finally:
        module.train(modes[0][1])
        for part, mode in modes:
            if part.training != mode:
                part.train(mode)
        for part, mode in modes:  # `train` of a part may leave others in another mode
            part.training = mode
