"""Where to cut a chain of layers, so that no stage has much more than the others.

What a layer costs is known in two ways. Before anything has run, it is what of the parameters its
work passes over (see `stages`). A trial sees what each takes (`layer_times`), and proposes another
cut where that is clearly better. Both are plain arithmetic here: the same numbers make the same cut
on every rank.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median

#: A cut is proposed where its slowest stage takes at most so much of what that of another does.
_WORTH_PROPOSING = 0.9
#: Layers of one kind count as equal unless one takes so many times as long as most, or as little.
_ALIKE = 1.5


@dataclass(frozen=True)
class Seen:
    """What one rank has seen its stage take for a micro-batch, in seconds."""

    stage: int
    layers: Mapping[int, float]  # by the layer's number in the chain
    rest: float  # of the model's code around them


def balanced(
    costs: Sequence[float], num_stages: int, *, before: float, after: float
) -> tuple[tuple[int, ...], float]:
    """Bounds of `num_stages` runs of layers, none empty, whose largest cost is least; that cost.

    The first stage has the cost of what is `before` the chain too, the last that `after` it.
    """
    num_layers = len(costs)
    total = _running_totals(costs, before, after)
    # least[n] is (largest cost, bounds) of the first n layers in the stages so far.
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
    """How many layers each stage has."""
    return [stop - start for start, stop in pairwise(bounds)]


def better_cut(
    bounds: Sequence[int], kinds: Sequence[str], seen: Sequence[Seen]
) -> list[int] | None:
    """The numbers of layers of stages that take more alike than those of `bounds` were seen to.

    None where there is no cut that is clearly better. `kinds` says which layers are built alike.
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
    """What the first n layers cost, with what is around the chain."""
    total = [before]
    for cost in costs:
        total.append(total[-1] + cost)
    total[0] = 0
    total[-1] += after
    return total


def _costs(kinds: Sequence[str], seen: Sequence[Seen]) -> list[float] | None:
    """What each layer takes; None where not all were seen.

    Layers of one kind take the same, but for those that clearly don't: the small differences of
    few measurements must not move a cut.
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
    """What a stage takes in all."""
    return median(each.rest + sum(each.layers.values()) for each in seen if each.stage == stage)
