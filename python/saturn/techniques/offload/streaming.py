"""Layers that live in the slow tier and come to the device only to run.

A streamed layer copies its parameters in, runs without a graph, and keeps only its inputs. In the
backward pass it copies its parameters in again and runs once more, with a graph. Its gradients then
go to the slow tier. The layer computes the same both times, because the random streams and the
autocast state are restored.

Parameters stay the same objects under the same names; only their data are replaced while the layer
runs. So the optimizer, a checkpoint, and code that holds a parameter never notice. Between runs,
data and gradients are in the slow tier.

A model that can't be followed is refused in words (`NotApplicable`): tensors inside opaque objects,
caches, and anything that `layer_check` finds in a layer's first run.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.utils._pytree import TreeSpec, tree_flatten, tree_unflatten

from saturn.data.seeds import RandomState
from saturn.techniques.interface import NotApplicable
from saturn.techniques.model.recompute import KeepsState, refuse_caches
from saturn.techniques.offload.courier import Courier
from saturn.techniques.offload.layer_check import first_run
from saturn.techniques.offload.slow_tier import SlowTier


class Streamed:
    """Parameters that come to the device and leave it together."""

    def __init__(self, parameters: Sequence[nn.Parameter], tier: SlowTier) -> None:
        """Move the parameters to the slow tier, one after the other."""
        self.parameters = list(parameters)
        self.trainable = [p for p in self.parameters if p.requires_grad]
        #: Whether the layer of these parameters has had its first run.
        self.is_checked = False
        self._tier = tier
        self._gradients: dict[nn.Parameter, Tensor] = {}  # memory that every step reuses
        for parameter in self.parameters:
            parameter.data = tier.copy_of(parameter.data)

    def data(self) -> list[Tensor]:
        """The parameters' data; between runs, tensors of the slow tier."""
        return [parameter.data for parameter in self.parameters]

    @contextlib.contextmanager
    def on_device(self, copies: Sequence[Tensor]) -> Iterator[None]:
        """Within this context, the parameters' data are `copies`."""
        slow = self.data()
        for parameter, copy in zip(self.parameters, copies, strict=True):
            parameter.data = copy
        try:
            yield
        finally:
            for parameter, data in zip(self.parameters, slow, strict=True):
                parameter.data = data

    def add_gradients(self, gradients: Sequence[Tensor | None], courier: Courier) -> None:
        """Add to the gradients of `trainable`, in the slow tier; to be called between runs.

        Copies from a GPU may be unfinished when this returns; see `Courier.finish`.
        """
        if any(parameter.grad is not None for parameter in self.trainable):
            courier.returned()  # of a layer that runs twice, the first gradients may be on the way
        left: list[Tensor] = []
        places: list[Tensor] = []
        for parameter, gradient in zip(self.trainable, gradients, strict=True):
            if gradient is None:
                continue
            if gradient.layout != torch.strided:  # a sparse embedding's gradient, which is small
                gradient = gradient.to(parameter.device)
                kept = parameter.grad
                parameter.grad = gradient if kept is None else kept + gradient
            elif parameter.grad is not None:
                parameter.grad.add_(gradient.to(parameter.device))
            else:
                if parameter not in self._gradients:
                    self._gradients[parameter] = self._tier.empty_like(parameter)
                parameter.grad = self._gradients[parameter]
                left.append(gradient)
                places.append(parameter.grad)
        courier.take_back(left, into=places)


class StreamedLayers:
    """The layers of one model, which are streamed in their order."""

    def __init__(self, layers: Sequence[nn.Module], tier: SlowTier, courier: Courier) -> None:
        """Move the layers' parameters to the slow tier, and replace each layer's `forward`."""
        self.courier = courier
        self._streamed = [Streamed(list(layer.parameters()), tier) for layer in layers]
        self.kept = [KeepsState(layer) for layer in layers]
        for number, layer in enumerate(layers):
            layer.forward = self._streaming(number, layer.forward)

    def _streaming(self, number: int, forward: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(forward)
        def streaming(*args: Any, **kwargs: Any) -> Any:
            leaves, spec = tree_flatten((args, kwargs))
            _check_arguments(leaves)
            tensors = [leaf for leaf in leaves if isinstance(leaf, Tensor)]
            run = _Run(self, number, forward, leaves, spec, self.courier.device)
            needs_graph = torch.is_grad_enabled() and (
                bool(self._streamed[number].trainable) or any(t.requires_grad for t in tensors)
            )
            if not needs_graph:
                with self.on_device(number):
                    return run.outputs(run(tensors))
            # The layer may get only tensors without gradients; this one makes autograd call back.
            always = torch.zeros((), requires_grad=True)
            return run.outputs(_Stream.apply(run, always, *tensors))

        return streaming

    @contextlib.contextmanager
    def on_device(self, number: int, *, backward: bool = False) -> Iterator[Streamed]:
        """Within this context, layer `number` has its parameters on the device."""
        streamed = self._streamed[number]
        following = number - 1 if backward else number + 1
        in_range = 0 <= following < len(self._streamed)
        ahead = self._streamed[following].data() if in_range else None
        with streamed.on_device(self.courier.bring(streamed.data())):
            yield streamed
        self.courier.done(ahead=ahead)


class _Run:
    """One call of one layer, which can be repeated: it holds the arguments without tensors."""

    def __init__(
        self,
        layers: StreamedLayers,
        number: int,
        forward: Callable[..., Any],
        leaves: Sequence[Any],
        spec: TreeSpec,
        device: torch.device,
    ) -> None:
        self.layers = layers
        self.number = number
        self._forward = forward
        self._arguments = _Frame.of(leaves, spec)
        self._random = RandomState.now(device)
        self._autocast = _Autocast.now(device.type)
        self._outputs: _Frame | None = None

    def __call__(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run the layer on `tensors`; returns the tensors in its outputs."""
        args, kwargs = self._arguments.filled(tensors)
        with self._autocast.on():
            returned, spec = tree_flatten(self._forward(*args, **kwargs))
        _check_outputs(returned)
        self._outputs = _Frame.of(returned, spec)
        return tuple(leaf for leaf in returned if isinstance(leaf, Tensor))

    def first_pass(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run the layer on the device, without a graph."""
        watched = self.layers.kept[self.number].watched()
        with self.layers.on_device(self.number) as streamed, watched:
            if streamed.is_checked:
                return self(tensors)
            streamed.is_checked = True
            return first_run(self, tensors, streamed.parameters)

    def again(self, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Run the layer again with the same random numbers, and with a graph."""
        with self._random.again(), torch.enable_grad():
            return self(tensors)

    def outputs(self, tensors: Sequence[Tensor]) -> Any:
        """The layer's return value, with its tensors replaced by `tensors`."""
        assert self._outputs is not None
        return self._outputs.filled(tensors)


class _Stream(torch.autograd.Function):
    """A streamed layer as one node of the graph."""

    @staticmethod
    def forward(ctx: Any, run: _Run, always: Tensor, *tensors: Tensor) -> tuple[Tensor, ...]:
        ctx.run = run
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return run.first_pass(tensors)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        run: _Run = ctx.run
        needed = ctx.needs_input_grad[2:]
        inputs = [
            tensor.detach().requires_grad_(need)
            for tensor, need in zip(ctx.saved_tensors, needed, strict=True)
        ]
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        with run.layers.on_device(run.number, backward=True) as streamed:
            outputs = run.again(inputs)
            pairs = [
                (output, gradient)
                for output, gradient in zip(outputs, gradients, strict=True)
                if gradient is not None and output.requires_grad
            ]
            found = torch.autograd.grad(
                [output for output, _ in pairs],
                [*wanted, *streamed.trainable],
                [gradient for _, gradient in pairs],
                allow_unused=True,
            )
        streamed.add_gradients(found[len(wanted) :], run.layers.courier)
        of_inputs = iter(found)
        return (None, None, *(next(of_inputs) if need else None for need in needed))


@dataclass(frozen=True)
class _Frame:
    """The arguments or outputs of a layer, without their tensors."""

    spec: TreeSpec
    others: tuple[Any, ...]  # all leaves, with None in place of tensors
    places: tuple[int, ...]

    @staticmethod
    def of(leaves: Sequence[Any], spec: TreeSpec) -> _Frame:
        return _Frame(
            spec,
            tuple(None if isinstance(leaf, Tensor) else leaf for leaf in leaves),
            tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)),
        )

    def filled(self, tensors: Sequence[Tensor]) -> Any:
        """The whole structure, with `tensors` in their places."""
        leaves = list(self.others)
        for place, tensor in zip(self.places, tensors, strict=True):
            leaves[place] = tensor
        return tree_unflatten(leaves, self.spec)


@dataclass(frozen=True)
class _Autocast:
    """The autocast state of one kind of device."""

    device_type: str
    enabled: bool
    dtype: torch.dtype

    @staticmethod
    def now(device_type: str) -> _Autocast:
        return _Autocast(
            device_type,
            torch.is_autocast_enabled(device_type),
            torch.get_autocast_dtype(device_type),
        )

    def on(self) -> contextlib.AbstractContextManager[Any]:
        if not self.enabled:
            return torch.autocast(self.device_type, enabled=False)
        # A cache of cast weights would keep every layer's until the forward is over.
        return torch.autocast(self.device_type, dtype=self.dtype, cache_enabled=False)


def _check_arguments(leaves: Sequence[Any]) -> None:
    refuse_caches(leaves)
    for leaf in leaves:
        if not isinstance(leaf, Tensor) and any(
            isinstance(value, Tensor) and value.requires_grad
            for value in getattr(leaf, "__dict__", {}).values()
        ):
            raise NotApplicable(
                f"a layer gets a {type(leaf).__name__} with tensors inside that need gradients; "
                "only tensors in tuples, lists and dicts can be followed"
            )


def _check_outputs(leaves: Sequence[Any]) -> None:
    for leaf in leaves:
        if not isinstance(leaf, Tensor | bool | int | float | str | None):
            raise NotApplicable(
                f"a layer returns a {type(leaf).__name__}; only tensors in tuples, lists and "
                "dicts can be followed"
            )
