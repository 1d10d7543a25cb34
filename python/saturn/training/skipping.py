"""Models whose devices take different paths: layers or experts that some slices skip.

Which layers a forward runs may depend on random draws (LayerDrop) or on the samples (experts). Then
two devices, with a slice each, run different parts in one step. FSDP2 matches gathers by their
order, and batch norms of a global batch their statistics: different layers would be mixed up, and
no error would tell. DDP waits for gradients that never come.

`slice_check` finds out whether a model is such, as far as its first samples show it. A technique
may find out at a later step (`PartsSkippedError`); later attempts then take it into account. This
module refuses or prepares a model that is spread over a gang.
"""

from __future__ import annotations

from torch.distributed.fsdp import FSDPModule
from torch.nn.modules.batchnorm import _BatchNorm

from saturn.techniques.interface import Knobs, NotApplicable, ParallelModel, Technique
from saturn.training.slicing import Slicing

_WHY = (
    "which of its layers run depends on random numbers or on the samples, as with layerdrop, so"
    " devices with slices of one batch would"
)


def knobs_for(technique: Technique, knobs: Knobs, slicing: Slicing) -> Knobs:
    """The knobs to train with: others than `knobs` if a later step has shown skipped parts.

    The trials may have chosen `knobs` before that step.
    """
    if slicing.skipped_later is None:
        return knobs
    return technique.retry_knobs(knobs, slicing.skipped_later) or knobs


def prepare(parallel: ParallelModel, slicing: Slicing) -> None:
    """Prepare a spread model for parts that some devices skip; raises `NotApplicable`."""
    if not (slicing.skips_layers or slicing.skips_parts):
        return
    parts = list(parallel.module.modules())
    sharded = [part for part in parts if isinstance(part, FSDPModule)]
    if slicing.skips_layers and sharded:
        raise NotApplicable(f"{_WHY} gather different layers for each other")
    if slicing.skips_layers and any(isinstance(part, _BatchNorm) for part in parts):
        raise NotApplicable(f"{_WHY} mix the statistics of different batch norms")
    parallel.expect_skipped_parts()
