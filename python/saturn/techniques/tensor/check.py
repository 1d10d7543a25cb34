"""Check that a split model computes the same as the whole model, before it trains a step.

A model may run with split modules and still compute something else. For example, attention may
derive the size of a head from its input. So one sample is sent through the model twice: split, and
with every split module made whole while it runs. The outputs of these modules and of the model are
compared. After the first backward, gradients of whole parameters must be equal on all ranks of the
group.

The checks change nothing: the forwards draw no dropout, keep no gradients, and restore the random
generators.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from saturn.data import seeds
from saturn.techniques.interface import NotApplicable
from saturn.techniques.model.modes import in_eval_mode
from saturn.techniques.tensor.layout import Layout, Styled
from saturn.techniques.tensor.styles import SUMMED

#: Largest relative difference (2-norm) that reordered sums explain: in float32, and in less.
_TOLERANCE, _COARSE_TOLERANCE = 1e-4, 0.1
#: How much the norms of one gradient may differ between two ranks, relatively.
_GRADIENT_TOLERANCE = 1e-3
#: Most elements of one output that are compared.
_MOST_COMPARED = 4096
#: Phrases that all reasons of this file contain.
_AS_SPLIT = "as the plan splits it"
_APART = "is not the same on the devices that share the model"

#: An output of a module, or of the model: the module's name, its shape, and some elements.
_Output = tuple[str, torch.Size, Tensor]


def check_forward(
    module: nn.Module,
    layout: Layout,
    run: Callable[[], Any],
    device: torch.device,
) -> Any:
    """Compare the outputs of the split model with the whole model's; every rank calls this.

    `run` gives the outputs of `module`, or of a part of it, for some batch, which may be small.
    Raises `NotApplicable` with the first module whose output differs. Returns the whole model's
    outputs.
    """
    with _at_rest(module), _whole(layout):
        outputs, expected = _outputs(layout.styled, run, device)
    with _at_rest(module):
        try:
            _, found = _outputs(layout.styled, run, device)
        except (TypeError, ValueError, IndexError, RuntimeError) as error:
            raise NotApplicable(
                f"{_AS_SPLIT}, the model can't run: {type(error).__name__}: {error}"
            ) from error
    tolerance = _tolerance([value for _, _, value in expected])
    for one, other in itertools.zip_longest(expected, found):
        if one is None or other is None or one[0] != other[0]:
            raise NotApplicable(f"{_AS_SPLIT}, the model calls other modules")
        name, shape, value = one
        if shape != other[1]:
            # A split module may give its part to the next module; the model must give the whole.
            if not name:
                raise NotApplicable(
                    f"{_AS_SPLIT}, the model's output must have the shape {tuple(shape)}, like "
                    f"the whole model's, but has {tuple(other[1])}"
                )
            continue
        difference = _relative_difference(value, other[2])
        if difference > tolerance:
            what = f"`{name}` gives" if name else "the model gives"
            raise NotApplicable(
                f"{_AS_SPLIT}, {what} another result than when it is whole (relative "
                f"difference {difference:.1g}); does a module before it depend on the size of "
                "what it gets, such as attention that takes the size of a head from it?"
            )
    return outputs


def check_gradients(module: nn.Module, mesh: DeviceMesh) -> None:
    """Raise `NotApplicable` if ranks of a group differ in the gradient of a whole parameter.

    Every rank calls this after a backward.
    """
    names, norms = [], []
    for name, parameter in module.named_parameters():
        gradient = parameter.grad
        if isinstance(gradient, DTensor) and gradient.placements[-1].is_replicate():
            names.append(name)
            norms.append(torch.linalg.vector_norm(gradient.to_local()).double())
    if not names:
        return
    own = torch.stack(norms)
    all_norms = [torch.empty_like(own) for _ in range(mesh.size())]
    dist.all_gather(all_norms, own, group=mesh.get_group())
    least, most = torch.stack(all_norms).aminmax(dim=0)
    apart = most - least > _GRADIENT_TOLERANCE * most
    if bool(apart.any()):
        raise NotApplicable(
            f"the gradient of `{names[int(apart.nonzero()[0])]}` {_APART}: where a module gets "
            f"only a part of the values, the plan must call it `{SUMMED}`"
        )


def is_about_the_plan(reason: str) -> bool:
    """Whether a reason comes from this file, so that another plan might work."""
    return _AS_SPLIT in reason or _APART in reason


@contextlib.contextmanager
def _at_rest(module: nn.Module) -> Iterator[None]:
    """Within this context the module is in evaluation mode and without gradients."""
    with in_eval_mode(module), torch.no_grad():
        yield


@contextlib.contextmanager
def _whole(layout: Layout) -> Iterator[None]:
    """Within this context split modules run whole: gathered, without their styles' hooks."""
    with contextlib.ExitStack() as stack:
        for sizes in layout.own_sizes:
            sizes.divide(1)
            stack.callback(sizes.divide, layout.size)
        for each in layout.styled:
            for hooks in (each.module._forward_pre_hooks, each.module._forward_hooks):
                stack.callback(hooks.update, dict(hooks))  # restores their old order
                stack.callback(hooks.clear)
                for key in each.hooks & hooks.keys():
                    del hooks[key]
            gathered = _Gathered()
            stack.enter_context(each.module.register_forward_pre_hook(gathered.before))
            stack.enter_context(
                each.module.register_forward_hook(gathered.after, prepend=True, always_call=True)
            )
        yield


class _Gathered:
    """Replaces split parameters and buffers by whole ones while their module runs."""

    def __init__(self) -> None:
        self._split: list[tuple[dict[str, Any], str, DTensor]] = []

    def before(self, module: nn.Module, _: Any) -> None:
        held: Sequence[dict[str, Any]] = (module._parameters, module._buffers)
        for tensors in held:
            for name, tensor in tensors.items():
                if isinstance(tensor, DTensor):
                    self._split.append((tensors, name, tensor))
        for tensors, name, tensor in self._split:
            tensors[name] = tensor.full_tensor()

    def after(self, *_: Any) -> None:
        for tensors, name, tensor in self._split:
            tensors[name] = tensor
        self._split.clear()


def _outputs(
    styled: Sequence[Styled], run: Callable[[], Any], device: torch.device
) -> tuple[Any, list[_Output]]:
    """(result of `run`, outputs of the styled modules in order and then of the model).

    The model's output has an empty name.
    """
    found: list[_Output] = []

    def keep(name: str, output: Any) -> None:
        for tensor in _tensors(output):
            whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
            flat = whole.detach().flatten()
            stride = -(-flat.numel() // _MOST_COMPARED) or 1
            found.append((name, whole.shape, flat[::stride].clone()))

    with contextlib.ExitStack() as stack:
        for each in styled:

            def hook(_: nn.Module, __: Any, output: Any, name: str = each.name) -> None:
                keep(name, output)

            stack.enter_context(each.module.register_forward_hook(hook))
        cuda = [device] if device.type == "cuda" else []
        with torch.random.fork_rng(devices=cuda), seeds.forked():
            outputs = run()
            keep("", outputs)
    return outputs, found


def _tensors(output: Any) -> Iterator[Tensor]:
    """The floating-point tensors of an output."""
    if isinstance(output, Tensor):
        if output.is_floating_point():
            yield output
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, tuple | list):
        for value in output:
            yield from _tensors(value)


def _relative_difference(expected: Tensor, found: Tensor) -> float:
    expected, found = expected.double(), found.double()
    norm = float(torch.linalg.vector_norm(expected))
    difference = float(torch.linalg.vector_norm(expected - found))
    if norm == 0.0 or not math.isfinite(norm):
        return 0.0  # there is nothing to compare with
    return difference / norm if math.isfinite(difference) else math.inf


def _tolerance(values: Sequence[Tensor]) -> float:
    """The tolerance of the least precise value, since that precision limits all later values."""
    for value in values:
        is_tf32 = value.is_cuda and torch.backends.cuda.matmul.fp32_precision == "tf32"
        if is_tf32 or value.dtype.itemsize < torch.float32.itemsize:
            return _COARSE_TOLERANCE
    return _TOLERANCE
