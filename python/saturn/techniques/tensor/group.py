"""A model, or a stage, split over a tensor group, as one rank holds it, with its checks.

The split is trusted once a forward, and then the first gradients, have been compared (see `check`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from saturn.techniques.tensor.check import check_forward, check_gradients, is_about_the_plan
from saturn.techniques.tensor.layout import split_over
from saturn.techniques.tensor.plan import ONLY

if TYPE_CHECKING:
    import torch
    from torch import nn
    from torch.distributed.device_mesh import DeviceMesh

    from saturn.techniques.interface import Knobs
    from saturn.techniques.tensor.derived import OwnSizes
    from saturn.techniques.tensor.plan import ModuleSplit, TensorPlan


class TensorGroup:
    """`module` split over the ranks of `mesh`; all of them make this object and call the same."""

    def __init__(
        self,
        module: nn.Module,
        splits: Sequence[ModuleSplit],
        own_sizes: Sequence[OwnSizes],
        mesh: DeviceMesh,
        device: torch.device,
        *,
        units: Sequence[nn.Module],
        are_gathered: bool,
    ) -> None:
        """Split `module`, and move it to `device`; see `split_over`."""
        self._module, self._mesh, self._device = module, mesh, device
        self._layout = split_over(
            module, splits, own_sizes, mesh, device, units=units, are_gathered=are_gathered
        )
        #: Whether the outputs, and the gradients, still have to be compared.
        self.forward_unchecked = self.gradients_unchecked = True

    @property
    def is_first(self) -> bool:
        """Whether this rank reports for the group."""
        return self._mesh.get_local_rank() == 0

    @property
    def hooks(self) -> frozenset[int]:
        """The ids of the hooks that the split has put on modules."""
        return frozenset[int]().union(*(each.hooks for each in self._layout.styled))

    def check_forward(self, run: Callable[[], Any]) -> Any:
        """Compare the split and the unsplit result of `run`; returns the unsplit result."""
        outputs = check_forward(self._module, self._layout, run, self._device)
        self.forward_unchecked = False
        return outputs

    def check_gradients(self) -> None:
        """Compare the first gradients after a backward; later gradients are not compared."""
        if self.gradients_unchecked:
            check_gradients(self._module, self._mesh)
            self.gradients_unchecked = False


def retry_knobs(plan: TensorPlan | None, knobs: Knobs, error: str) -> Knobs | None:
    """Knobs for only a part of a derived `plan`, if `error` says that the plan is wrong.

    A derived plan may be wrong for attention and still right for the MLPs.
    """
    if plan is None or not is_about_the_plan(error):
        return None
    part = plan.other_part(knobs.get(ONLY))
    return None if part is None else {**knobs, ONLY: part}
