"""FSDP2 over the units of a model, as `fsdp` and the techniques that include it use it.

A unit is gathered and freed as one. Each repeated layer is a unit; all other parameters form the
root's. Parameters without a dimension, which torch refuses to split, stay whole on every rank (see
`WholeScalars`).

A step may have several backwards, for a pipeline's micro-batches. Between `gather` and `release`
all units stay whole and their gradients add up unsplit. Only the last backward reduces them.

Autocast keeps its copies of weights until the root's forward ends, and autograd keeps them until
the backward. Within units both are turned off (see `casts`): else the copies of all units would
fill every device, gathered and freed or not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule, fully_shard

from saturn.techniques.interface import NotApplicable
from saturn.techniques.model.casts import keep_weights_alone
from saturn.techniques.model.changed_parameters import ForwardWatch
from saturn.techniques.model.used_parameters import UseOfParameters

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from saturn.techniques.model.local_copies import WholeScalars


class Sharding:
    """A root module and its units, split over the ranks of `data`."""

    def __init__(
        self,
        root: nn.Module,
        units: Sequence[nn.Module],
        data: DeviceMesh,
        scalars: WholeScalars,
        options_of_root: Mapping[str, Any] | None = None,
        *,
        reshard_after_forward: bool = True,
        **options: Any,
    ) -> None:
        """`scalars` are the scalars of `root`; `options` go to `fully_shard`.

        If `data` has two dimensions, FSDP2 splits over the second and copies over the first.

        `options_of_root` are further options for the root only.
        """
        options |= {"mesh": data}
        # Units first: each moves to the device already split, so the device never has to hold the
        # whole model.
        for unit in units:
            keep_weights_alone(unit)
            fully_shard(
                unit,
                reshard_after_forward=reshard_after_forward,
                ignored_params=scalars.ignored,
                **options,
            )
            unit.register_forward_pre_hook(_keep_no_casts)
        # A unit may wrap a module that the root also reaches by another path.
        split = {parameter for unit in units for parameter in unit.parameters()}
        # torch keeps the root gathered between forward and backward: its backward comes first.
        options |= options_of_root or {}
        fully_shard(root, ignored_params=scalars.ignored | split, **options)
        _watch_forwards(root, units)
        self._root = root
        self._modules = [module for module in (root, *units) if isinstance(module, FSDPModule)]
        self._scalars, self._data = scalars, data
        self._use = None if data.size() == 1 else UseOfParameters(root, units, data)
        # So all ranks add up gradients of the same parameters, whatever parts they have used.
        setting = "set_reduce_scatter_unused_params"
        self._counts_unused = all(hasattr(module, setting) for module in self._modules)
        for module in self._modules if self._counts_unused else ():
            getattr(module, setting)(True)

    def gather(self) -> None:
        """Gather all units until `release`, in the same order on all ranks."""
        for module in self._modules:
            module.unshard(async_op=True)

    def before_backward(self, *, is_last: bool) -> None:
        """Say whether the next backward is the last before the optimizer's step."""
        assert isinstance(self._root, FSDPModule)
        self._root.set_is_last_backward(is_last)
        self._root.set_requires_gradient_sync(is_last)
        self._root.set_reshard_after_backward(is_last)

    def release(self) -> None:
        """Split units again that are still gathered, because no backward has reached them."""
        for module in self._modules:
            module.reshard()

    def average_scalars(self) -> None:
        """Average the gradients of parameters without a dimension, as FSDP2 averages the others."""
        self._scalars.average_gradients(self._data)

    def expect_skipped_parts(self) -> None:
        """From now on, ranks and steps may use different parameters of a unit."""
        if self._use is not None:
            if not self._counts_unused:
                raise NotApplicable(
                    "some devices use parts of its layers that others don't, as experts; this "
                    "version of torch would add up gradients of different parts"
                )
            self._use.expect_skips()

    def step_ended(self) -> None:
        """Finish a step's gradients, after its last backward; see `UseOfParameters`."""
        if self._use is not None:
            self._use.step_ended()


def _watch_forwards(root: nn.Module, units: Sequence[nn.Module]) -> None:
    """Have forwards of units that change parameters themselves raise `NotApplicable`.

    They run on gathered copies, which are thrown away, with all changes. To be called when `root`
    has been split.
    """
    # What is still split while a unit runs is no copy, and keeps its changes.
    split = {id(parameter) for parameter in root.parameters()}
    for unit in (*units, root):
        _watch(unit, split)


def _watch(unit: nn.Module, split: Set[int]) -> None:
    watch = ForwardWatch()

    def begin(unit: nn.Module, inputs: Any) -> None:
        if torch.is_grad_enabled():
            named = unit.named_parameters()
            # Stand-ins for scalars are no `nn.Parameter`s. They are no copies either.
            watch.begin(
                (n, p) for n, p in named if isinstance(p, nn.Parameter) and id(p) not in split
            )

    def end(unit: nn.Module, inputs: Any, outputs: Any) -> None:
        if (name := watch.changed()) is not None:
            raise NotApplicable(
                f"a forward changes the parameter `{name}` itself; here it runs on gathered "
                "copies, and the change would be lost"
            )

    unit.register_forward_pre_hook(begin)
    # Before FSDP2's own hook, which frees the gathered copies.
    unit.register_forward_hook(end, prepend=True)


def _keep_no_casts(unit: nn.Module, inputs: tuple[Any, ...]) -> None:
    """Stop the enclosing autocast from keeping copies of weights; its end restores the setting."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        torch.set_autocast_cache_enabled(False)
        torch.clear_autocast_cache()
