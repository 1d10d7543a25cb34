"""Whether a case trained as its reference did: losses, evaluations, weights, best checkpoint."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import closeness
import torch
from pair_happenings import Story
from pair_models import PRECISION
from pair_tasks import Expected
from random_chains import weights
from saturn.checkpoint import manifest

#: No loss of a task that does not explode is larger.
EXPLODED = 100.0


def judge(story: Story, expected: Expected) -> None:
    """The task has the reference's losses, evaluations and weights, or fails with its error."""
    run, case, name = story.run, story.case, story.name
    last = story.attempts[-1]
    assert all(code <= 0 for code in last.result.codes) or last.ended == "failed", last.result.logs
    for technique, words in story.refusals:
        assert "running" in words, (technique, words)
    found = run.losses(name) if (run.task_dir(name) / "metrics.jsonl").exists() else {}
    if expected.error is not None and last.ended == "failed":
        failed = last.result.of("failed")
        assert any(expected.error in one["error"] for one in failed), failed
        end = max(expected.losses, default=0)
        # Accelerate fetches a batch ahead, so `train()` ends a step before the bad row's; the same
        # step where the bad batch and the batch before it are of one step.
        if case.is_trainers and not (case.has("accumulated") and end == len(found)):
            end += 1
    elif case.has("stopped by a search", "cancel"):
        assert last.ended == "stopped", last.result.logs
        end = last.result.of("stopped")[0]["step"]
    else:
        assert last.ended == "finished", last.result.logs
        end = last.result.one("finished")["step"]
        assert end == max(expected.losses)
    assert sorted(found) == list(range(1, end + 1))
    compare = Comparison(story)
    if story.draws_unlike_the_reference:
        assert case.has("nan", "explosion") or all(
            math.isfinite(size_of(loss)) for loss in found.values()
        )
        return
    known = {step: loss for step, loss in found.items() if step in expected.losses}
    compare(known, {step: expected.losses[step] for step in known})
    evaluations = dict(run.evaluations(name)) if found else {}
    for step, metrics in evaluations.items():
        compare(metrics, expected.evaluations[step])
    if last.ended == "finished":
        assert evaluations.keys() == expected.evaluations.keys()
        compare(newest(story), expected.weights)
    if case.has("best kept"):
        assert best_step(story) == best_of(expected, evaluations)


def newest(story: Story) -> dict[str, torch.Tensor]:
    directory = story.run.task_dir(story.name) / "checkpoints"
    return weights(directory, story.definition.get_model())[1]


def best_step(story: Story) -> int | None:
    kept = manifest.newest_valid(story.run.task_dir(story.name) / "best")
    return None if kept is None else int(kept[1]["step"])


def best_of(expected: Expected, evaluations: Iterable[int]) -> int | None:
    """The first step with the least loss among those at which the task was evaluated."""
    found = {step: expected.evaluations[step]["eval_loss"] for step in evaluations}
    finite = {step: loss for step, loss in found.items() if math.isfinite(loss)}
    return min(finite, key=lambda step: (finite[step], step), default=None)


@dataclass
class Comparison:
    """How close a case's numbers must be to the reference's.

    On one rank that computes as the reference does: the same bits. Otherwise sums come in another
    order: as many ulps as `closeness` allows, of the numbers with which the forward computes. What
    explodes makes any difference larger with each step, until nothing can be compared: there the
    numbers before are, and whether each is finite.
    """

    story: Story

    def __call__(self, found: Mapping[Any, Any], expected: Mapping[Any, Any]) -> None:
        assert found.keys() == expected.keys()
        explodes = self.story.case.has("explosion") and not self.is_exact
        if explodes and any(isinstance(value, torch.Tensor) for value in expected.values()):
            return  # the last weights are after the explosion
        if explodes:
            large = [name for name, value in expected.items() if size_of(value) > EXPLODED]
            names = list(itertools.takewhile(lambda name: name not in large, expected))
        else:
            names = [name for name, value in expected.items() if math.isfinite(size_of(value))]
            for name, value in expected.items():
                assert math.isfinite(size_of(found[name])) == math.isfinite(size_of(value)), name
        both = [{name: side[name] for name in names} for side in (found, expected)]
        apart = closeness.by_name(*both, of=self.dtype)
        assert max(apart.values(), default=0.0) <= self.ulps, (self.story.case.label, apart)

    @property
    def is_exact(self) -> bool:
        return all(attempt.is_plain for attempt in self.story.attempts)

    @property
    def dtype(self) -> torch.dtype:
        return PRECISION.get(self.story.case["precision"], torch.float32)

    @property
    def ulps(self) -> float:
        if self.is_exact and self.story.case.is_trainers:
            return closeness.SUMMED
        if self.is_exact:
            return 0.0
        # Of few bits, few are left to chance.
        return closeness.ACROSS if self.dtype is torch.float32 else 2.0


def size_of(value: Any) -> float:
    if isinstance(value, torch.Tensor):
        return value.double().abs().max().item() if value.numel() else 0.0
    return math.inf if value is None or isinstance(value, str) else abs(float(value))
