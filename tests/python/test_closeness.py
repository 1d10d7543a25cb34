"""The helper that says how close results are sees errors, and takes rounding for rounding."""

from __future__ import annotations

import math

import pytest
import reference
import torch
from closeness import ACROSS, SUMMED, by_name, ulps
from models import definition

UP = {
    torch.float32: 2.0**-23,
    torch.bfloat16: 2.0**-7,
    torch.float16: 2.0**-10,
    torch.float64: 2.0**-52,
}


@pytest.mark.parametrize("dtype", UP, ids=str)
@pytest.mark.parametrize("size", [1.0, 18.744911, 0.0003, 1.9999, 3e4])
def test_two_neighbours_are_one_ulp_apart_whatever_their_size(
    dtype: torch.dtype, size: float
) -> None:
    number = torch.tensor(size, dtype=dtype)
    above = torch.nextafter(number, torch.tensor(math.inf, dtype=dtype))
    assert ulps(above, number, of=dtype) == ulps(number, above, of=dtype) == 1.0
    assert ulps(1.0 + UP[dtype], 1.0, of=dtype) == 1.0


def test_a_loss_of_eighteen_rounded_once_more_is_close_and_one_of_two_is_as_close() -> None:
    # Four losses summed in float32 by a Trainer, and in float64 by Saturn.
    assert ulps({1: 18.744909286499023, 2: 8.4}, {1: 18.744911193847656, 2: 8.4}) == 1.0 < SUMMED
    assert ulps({1: 0.018744909286}, {1: 0.018744911194}) == pytest.approx(1.02, abs=0.03)


def test_a_curve_and_a_model_have_the_unit_of_their_largest_number() -> None:
    assert ulps({1: 1.0, 2: 2.0**-20}, {1: 1.0, 2: 2.0**-20 + 2.0**-23}) == 1.0
    small, large = torch.full((2,), 2.0**-20), torch.ones(2)
    assert ulps(small + 2.0**-43, small) == 1.0
    moved, model = {"large": large, "small": small + 2.0**-22}, {"large": large, "small": small}
    assert by_name(moved, model) == {"large": 0.0, "small": 2.0}


def test_whole_numbers_are_equal_or_not_and_are_no_unit_for_others() -> None:
    model = {"weight": torch.ones(2), "batches": torch.tensor(1_000_000)}
    assert ulps({**model, "weight": torch.ones(2) + 2.0**-23}, model) == 1.0
    assert ulps({**model, "batches": torch.tensor(1_000_001)}, model) == math.inf


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_what_is_no_number_is_close_to_nothing_else(number: float) -> None:
    assert ulps({1: number, 2: 1.0}, {1: 2.0, 2: 1.0}) == math.inf
    assert ulps(torch.tensor([1.0, number]), torch.ones(2)) == math.inf
    assert ulps({1: math.inf}, {1: math.inf}) == 0.0


def test_curves_over_other_steps_and_tensors_of_other_shapes_are_refused() -> None:
    with pytest.raises(AssertionError):
        ulps({1: 1.0}, {1: 1.0, 2: 1.0})
    with pytest.raises(AssertionError):
        ulps(torch.ones(2), torch.ones(1))


def test_another_order_of_sums_is_close_and_a_small_error_is_far() -> None:
    # Adam would divide such an error out again.
    task = definition(optimizer_cls=torch.optim.SGD, lr=0.1)
    expected, _ = reference.train(task, 8)

    def with_error(change: float) -> dict[int, float]:
        """Trained with gradients that are too large by this part."""

        def loss_of(
            model: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]
        ) -> torch.Tensor:
            # Three sums in place of one: the order of another strategy.
            parts = [
                torch.nn.functional.cross_entropy(model(inputs), labels)
                for inputs, labels in zip(batch[0].split(3), batch[1].split(3), strict=True)
            ]
            counts = [len(labels) for labels in batch[1].split(3)]
            mean = sum(loss * count for loss, count in zip(parts, counts, strict=True)) / len(
                batch[1]
            )
            return mean + change * (mean - mean.detach())

        return reference.train(task, 8, loss_of=loss_of)[0]

    assert ulps(with_error(0.0), expected) < ACROSS / 4
    assert ulps(with_error(1e-3), expected) > 10 * ACROSS
