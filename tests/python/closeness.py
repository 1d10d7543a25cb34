"""How close two results must be: one rule for all tests of numbers.

*The same bits*: the same strategy, on the same kernels, gives the same numbers, stopped in between
or not. Such tests compare with `==` and `torch.equal`.

Ranks compute on one thread. Where this process has more, what it computes itself has sums in
another order: then the same training is only close (`is_same`).

*Close*: wherever sums come in another order (another strategy, or plain torch), results differ by
their rounding. It is counted in *ulps*: in units in the last place of the largest number compared,
so in parts of its size, whatever that is. One unit serves a whole curve of losses, and a whole
model: a number near zero is the difference of larger ones, and carries their rounding. (A bias
that begins at zero is lr times gradients, which come from the other weights.)
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

#: Fewer ulps lie between trainings whose sums come in another order: less than 4e-6 of the largest
#: loss. Losses of the tests are up to 3 apart and weights up to 22, on all kernels that were tried;
#: the errors that tests plant are thousands away.
ACROSS = 32.0
#: Fewer lie between sums of the same few numbers, which one side rounds to float32 on the way.
SUMMED = 4.0


def is_same(found: Any, expected: Any) -> bool:
    """Whether a rank's numbers are those that this process computed for the same strategy."""
    apart = ulps(found, expected)
    return apart == 0.0 if torch.get_num_threads() == 1 else apart < ACROSS


def ulps(found: Any, expected: Any, *, of: torch.dtype = torch.float32) -> float:
    """Ulps between two numbers, lists of numbers, tensors, or mappings of any of these.

    A mapping is a curve (losses by step, say) or the state of a model.
    """
    if isinstance(expected, Mapping):
        return max(by_name(found, expected, of=of).values(), default=0.0)
    return by_name({"": found}, {"": expected}, of=of)[""]


def by_name(
    found: Mapping[Any, Any], expected: Mapping[Any, Any], *, of: torch.dtype = torch.float32
) -> dict[Any, float]:
    """Ulps between what has the same name; one unit for all. Whole numbers must be equal."""
    assert found.keys() == expected.keys()
    pairs = {name: (_numbers(found[name]), _numbers(expected[name])) for name in expected}
    sizes = [0.0]
    for name, (one, other) in pairs.items():
        assert one.shape == other.shape, name
        if one.numel() and not _is_whole(expected[name]):
            sizes += [one.abs().max().item(), other.abs().max().item()]
    # NaN is larger than anything.
    largest = math.inf if any(map(math.isnan, sizes)) else max(sizes)
    apart = {}
    for name, (one, other) in pairs.items():
        if bool((one == other).all()):
            apart[name] = 0.0
        elif _is_whole(expected[name]) or math.isinf(largest):
            apart[name] = math.inf
        else:
            apart[name] = (one - other).abs().max().item() / _ulp(largest, of)
    return apart


def _numbers(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value.detach().to("cpu", torch.float64)
    listed = list(value) if isinstance(value, Sequence) else [value]
    return torch.tensor([float(each) for each in listed], dtype=torch.float64)


def _is_whole(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and not value.is_floating_point()


def _ulp(size: float, dtype: torch.dtype) -> float:
    """The distance of numbers of that size in `dtype`."""
    kind = torch.finfo(dtype)
    _, exponent = math.frexp(max(size, kind.tiny))
    return math.ldexp(kind.eps, exponent - 1)
