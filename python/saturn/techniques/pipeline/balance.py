"""Where to cut a chain of layers, so that no stage has much more work than the others.

A layer's cost is known in two ways. Before anything has run, it is the number of parameters that
the layer's work passes over (see `stages`). A trial measures the time of each layer
(`layer_times`), and proposes another cut if that is clearly better. Both are plain arithmetic here:
the same numbers give the same cut on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

#: A cut is proposed if its slowest stage takes at most this part of the present slowest stage.
_WORTH_PROPOSING = 0.9
#: Layers of one kind count as equal unless one differs from the median by more than this factor.
_ALIKE = 1.5


@dataclass(frozen=True)
class Seen:
    """The times that one rank measured in its stage for a micro-batch, in seconds."""

    stage: int
    layers: Mapping[int, float]  # seconds of each layer, by the layer's number in the chain
    rest: float  # seconds of the model's code around the layers


def balanced(
    costs: Sequence[float], num_stages: int, *, before: float, after: float
) -> tuple[tuple[int, ...], float]:
    """(bounds of `num_stages` nonempty runs of layers with the least maximal cost, that cost).

    The first stage also has the cost `before` the chain, the last stage the cost `after` it.
    """
    num_layers = len(costs)
    total = _running_totals(costs, before, after)
    # least[n] is (largest cost, bounds) for the first n layers in the stages so far.
    least: dict[int, tuple[float, tuple[int, ...]]] = {
        n: (total[n], (0, n)) for n in range(1, num_layers + 1)
    }
    for stages in range(2, num_stages + 1):
        least = {
            n: min(
                (max(least[m][0], total[n] - total[m]), (*least[m][1], n))
                for m in range(stages - 1, n)
            )
            for n in range(stages, num_layers + 1)
        }
    largest, bounds = least[num_layers]
    return bounds, largest


def numbers_of_layers(bounds: Sequence[int]) -> list[int]:
    """The number of layers of each stage."""
    return [stop - start for start, stop in pairwise(bounds)]


def better_cut(
    bounds: Sequence[int], kinds: Sequence[str], seen: Sequence[Seen]
) -> list[int] | None:
    """Numbers of layers for stages whose times are more equal than measured with `bounds`.

    None if no cut is clearly better. Layers with the same entry of `kinds` are built alike.
    """
    num_stages = len(bounds) - 1
    costs = _costs(kinds, seen)
    if costs is None:
        return None
    ends = [
        max(0.0, _of_stage(seen, stage) - sum(costs[bounds[stage] : bounds[stage + 1]]))
        for stage in (0, num_stages - 1)
    ]
    total = _running_totals(costs, *ends)
    now = max(total[stop] - total[start] for start, stop in pairwise(bounds))
    found, largest = balanced(costs, num_stages, before=ends[0], after=ends[1])
    return numbers_of_layers(found) if largest <= _WORTH_PROPOSING * now else None


def _running_totals(costs: Sequence[float], before: float, after: float) -> list[float]:
    """The cost of the first n layers, with the cost around the chain."""
    total = [before]
    for cost in costs:
        total.append(total[-1] + cost)
    total[0] = 0
    total[-1] += after
    return total


def _costs(kinds: Sequence[str], seen: Sequence[Seen]) -> list[float] | None:
    """The seconds of each layer; None if some layer was not measured.

    Layers of one kind get the same time, unless one clearly differs: small differences between few
    measurements must not move a cut.
    """
    of_layers: list[float] = []
    for number in range(len(kinds)):
        values = [each.layers[number] for each in seen if number in each.layers]
        if not values:
            return None
        of_layers.append(median(values))
    usual = {
        kind: median(own for own, other in zip(of_layers, kinds, strict=True) if other == kind)
        for kind in set(kinds)
    }
    return [
        usual[kind] if usual[kind] / _ALIKE <= own <= usual[kind] * _ALIKE else own
        for own, kind in zip(of_layers, kinds, strict=True)
    ]


def _of_stage(seen: Sequence[Seen], stage: int) -> float:
    """The seconds of a whole stage."""
    return median(each.rest + sum(each.layers.values()) for each in seen if each.stage == stage)
