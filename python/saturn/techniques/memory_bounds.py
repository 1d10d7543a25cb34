"""Lower bounds of what a device must hold to train a model: parameters, gradients, optimizer state.

Activations are left out, and so is whatever a framework allocates besides, so a strategy whose
bound is above a device's memory can't run there, while one below may still not fit. Bytes are
those of the module as the task built it; a shared parameter counts once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from saturn.techniques.model.layers import repeated_layers

if TYPE_CHECKING:
    from torch import nn

    from saturn.techniques.interface import Setting


#: What needs less than this part of a device leaves enough for activations: they can be recomputed.
_ROOMY = 0.5


@dataclass(frozen=True)
class Sizes:
    """Bytes of some modules' parameters."""

    parameters: int
    trainable: int  # those with gradients: as many bytes again

    @property
    def with_gradients(self) -> int:
        """Parameters and gradients together."""
        return self.parameters + self.trainable


def sizes(modules: Iterable[nn.Module]) -> Sizes:
    """The sizes of `modules` together."""
    found = {id(p): p for module in modules for p in module.parameters()}
    return Sizes(
        parameters=sum(p.nbytes for p in found.values()),
        trainable=sum(p.nbytes for p in found.values() if p.requires_grad),
    )


def layers_and_rest(module: nn.Module) -> tuple[list[Sizes], Sizes]:
    """The sizes of each repeated layer of `module`, and of what is outside of them."""
    layers = [sizes([layer]) for layer in repeated_layers(module)]
    whole = sizes([module])
    return layers, Sizes(
        parameters=whole.parameters - sum(layer.parameters for layer in layers),
        trainable=whole.trainable - sum(layer.trainable for layer in layers),
    )


def whole_model_bytes(module: nn.Module, setting: Setting) -> int:
    """Everything on one device: parameters, gradients and optimizer state."""
    whole = sizes([module])
    return whole.with_gradients + int(whole.trainable * setting.optimizer_state_ratio)


def room_to_spare(module: nn.Module, setting: Setting) -> str | None:
    """Why keeping parts of `module` off the device can only be slower; None where it may help."""
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
    """Everything split evenly over the devices, one repeated layer gathered whole at a time.

    What is outside the layers stays gathered from forward to backward, and so do the layers
    without `reshard_after_forward`. With `cpu_offload` only what is gathered is on the device.

    The largest of what certain moments need, in whatever order the layers run:

    * in the backward pass, the end of each layer's: it is gathered, and its gradients are whole;
    * the end of the last layer's, where all others have left their part of their gradients;
    * without `reshard_after_forward`, the end of the forward pass, with every layer gathered;
    * the optimizer step, with parameters, gradients and state split, and nothing gathered.
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
    """Layers one at a time; what is outside of them stays for a whole forward and backward.

    In the backward pass of a layer, it and its gradients are there, beside the parameters of the
    rest; at its end the rest has gradients too. The optimizer's state is elsewhere.
    """
    layers, rest = layers_and_rest(module)
    one_layer = max((layer.with_gradients for layer in layers), default=0)
    return rest.parameters + max(rest.trainable, one_layer)
