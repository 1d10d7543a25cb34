"""Lower bounds of the memory that a device needs: parameters, gradients, optimizer state.

Activations and a framework's other allocations are left out. So a strategy whose bound exceeds a
device's memory can't run there; a strategy below may still not fit. Bytes are those of the module
as the task built it; a shared parameter counts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saturn.techniques.model.layers import repeated_layers

if TYPE_CHECKING:
    from torch import nn

    from saturn.techniques.interface import Setting


#: A model below this part of a device leaves enough for activations, which can be recomputed.
_ROOMY = 0.5


@dataclass(frozen=True)
class Sizes:
    """Bytes of the parameters of some modules."""

    parameters: int
    trainable: int  # bytes of parameters with gradients, which take as many bytes again

    @property
    def with_gradients(self) -> int:
        """Parameters and gradients together."""
        return self.parameters + self.trainable


def sizes(modules: Iterable[nn.Module]) -> Sizes:
    """The sizes of all `modules` together."""
    found = {id(p): p for module in modules for p in module.parameters()}
    return Sizes(
        parameters=sum(p.nbytes for p in found.values()),
        trainable=sum(p.nbytes for p in found.values() if p.requires_grad),
    )


def layers_and_rest(module: nn.Module) -> tuple[list[Sizes], Sizes]:
    """The sizes of each repeated layer of `module`, and of everything outside the layers."""
    layers = [sizes([layer]) for layer in repeated_layers(module)]
    whole = sizes([module])
    return layers, Sizes(
        parameters=whole.parameters - sum(layer.parameters for layer in layers),
        trainable=whole.trainable - sum(layer.trainable for layer in layers),
    )


def whole_model_bytes(module: nn.Module, setting: Setting) -> int:
    """Bytes if one device holds everything: parameters, gradients and optimizer state."""
    whole = sizes([module])
    return whole.with_gradients + int(whole.trainable * setting.optimizer_state_ratio)


def room_to_spare(module: nn.Module, setting: Setting) -> str | None:
    """Why keeping parts of `module` off the device can only cost time; None if it may help."""
    available = setting.device_memory_bytes
    if available is None:
        return "nothing says that a device's memory is short (see device_memory)"
    needed = whole_model_bytes(module, setting)
    if needed < _ROOMY * available:
        return (
            f"the whole model with gradients and optimizer state takes {needed / available:.0%} "
            "of one device"
        )
    return None


def sharded_bytes(
    module: nn.Module, setting: Setting, *, reshard_after_forward: bool, cpu_offload: bool
) -> int:
    """Bytes if all is split evenly over the devices, and one repeated layer at a time is gathered.

    Parameters outside the layers stay gathered from forward to backward; so do the layers without
    `reshard_after_forward`. With `cpu_offload`, the device holds only what is gathered.

    The result is the largest need of these moments, in whatever order the layers run:

    * the end of each layer's backward: the layer is gathered, and its gradients are whole;
    * the end of the last layer's backward: all other layers' gradients are split and kept;
    * without `reshard_after_forward`, the end of the forward pass: every layer is gathered;
    * the optimizer step: parameters, gradients and state are split, and nothing is gathered.
    """
    layers, rest = layers_and_rest(module)
    whole = sizes([module])
    parts = 0 if cpu_offload else setting.gpus

    def split(size: float) -> int:
        return int(size / parts) if parts else 0

    state = whole.trainable * setting.optimizer_state_ratio
    between_steps = split(whole.parameters + state)
    gathered = [rest.parameters + layer.with_gradients for layer in layers]
    others = sum(layer.trainable for layer in layers)
    at_the_last = [
        size + split(others - layer.trainable) for size, layer in zip(gathered, layers, strict=True)
    ]
    moments = [
        between_steps + max(gathered, default=rest.parameters),
        between_steps + min(at_the_last, default=rest.with_gradients),
        split(whole.with_gradients + state),
    ]
    if not reshard_after_forward:
        moments.append(between_steps + whole.parameters)
    return max(moments)


def streamed_bytes(module: nn.Module) -> int:
    """Bytes if layers come one at a time, and everything outside stays for a whole step.

    During a layer's backward, the device holds the layer, its gradients, and the parameters outside
    the layers. At the end, those parameters have gradients too. The optimizer's state is elsewhere.
    """
    layers, rest = layers_and_rest(module)
    one_layer = max((layer.with_gradients for layer in layers), default=0)
    return rest.parameters + max(rest.trainable, one_layer)
