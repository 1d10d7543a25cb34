"""The same training under chains of strategies that nobody chose.

`SATURN_CHAIN_SEEDS=200` runs as many chains, `SATURN_CHAIN_SEEDS=50-59` those of these seeds.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from functools import partial
from typing import Any

import closeness
import model_kinds
import pytest
import reference
import torch
from harness import Runtime
from random_chains import (
    KINDS,
    WIDE,
    Chain,
    Move,
    Strategy,
    across_nodes,
    assert_trains_as_plain_torch_does,
    draw,
    newest,
    play,
    strategies,
)
from saturn.techniques import BUILT_IN
from torch import nn

Losses = dict[int, float]
DEFAULT_SEEDS = "16"


def seeds() -> range:
    first, dash, last = os.environ.get("SATURN_CHAIN_SEEDS", DEFAULT_SEEDS).partition("-")
    return range(int(first), int(last) + 1) if dash else range(int(first))


@pytest.mark.slow
@pytest.mark.parametrize("seed", seeds())
def test_a_chain_of_strategies_trains_as_plain_torch_does(run: Runtime, seed: int) -> None:
    assert_trains_as_plain_torch_does(run, draw(seed))


#: Chains that together cross nodes by every kind of technique that may: see the test of that.
ACROSS = (1, 4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", ACROSS)
def test_a_chain_that_crosses_nodes_trains_as_plain_torch_does(run: Runtime, seed: int) -> None:
    assert_trains_as_plain_torch_does(run, across_nodes(draw(seed)))


def test_the_default_seeds_draw_everything_there_is() -> None:
    chains = [draw(seed) for seed in range(int(DEFAULT_SEEDS))]
    moves = [(chain, move) for chain in chains for move in chain.moves]
    assert {chain.kind for chain in chains} == set(KINDS)
    assert {move.strategy.technique for _, move in moves} == set(BUILT_IN)
    knobs = [dict(move.strategy.knobs) for _, move in moves]
    assert {each.get("schedule") for each in knobs} == {None, "1f1b", "gpipe", "interleaved"}
    assert {"cut" in each for each in knobs} == {True, False}
    assert any(
        chain.kind == "mixtral" and "tensor" in move.strategy.technique for chain, move in moves
    )
    assert {move.strategy.ranks for _, move in moves} >= {1, 2, 3, 4, 8}
    assert any(chain.batch_size % move.strategy.ranks for chain, move in moves)
    assert {len(chain.moves) - 1 for chain in chains} == {2, 3, 4, 5}
    for option in ("optimizer", "scheduler", "accumulate", "clip"):
        assert len({chain.options[option] for chain in chains}) > 1, option
    assert all(
        one.strategy != other.strategy
        for chain in chains
        for one, other in itertools.pairwise(chain.moves)
    )


def widest(technique: str, dropout: float = 0.0) -> tuple[str, Strategy]:
    """(kind, strategy): a kind that `technique` can train, on as many ranks as few cores can."""
    for kind in ("tied", "sequential", "llama"):
        if technique in (offered := strategies(kind, dropout)):
            few = [each for each in offered[technique] if each.ranks <= WIDE]
            return kind, max(few or offered[technique], key=lambda each: each.ranks)
    raise AssertionError(f"{technique} trains no kind")


def whole_and_in_parts(run: Runtime, kind: str, strategy: Strategy, **options: Any) -> Losses:
    """The losses of seven steps, which must be bit-equal with stops and without."""
    found = {}
    for name, ends in (("whole", [7]), ("parts", [3, 7])):
        task = model_kinds.task_of(kind, name, batch_size=7, batch_count=7, **options)
        chain = Chain(0, kind, 7, {}, task, tuple(Move(strategy, end) for end in ends), None)
        run.write_task(task)
        found[name] = play(run, chain, *chain.moves), newest(run, chain)[1]
    assert found["whole"][0] == found["parts"][0]
    for name, tensor in found["whole"][1].items():
        assert torch.equal(tensor, found["parts"][1][name]), name
    return found["whole"][0]


def expected_losses(kind: str, **options: Any) -> Losses:
    task = model_kinds.task_of(kind, batch_size=7, batch_count=7, **options)
    return reference.train(task, 7, loss_of=model_kinds.loss_of(task))[0]


# Of `tensor`, quick: `test_tensor`.
@pytest.mark.slow(quick=["fsdp"])
@pytest.mark.parametrize("technique", BUILT_IN)
def test_with_dropout_a_stop_changes_no_bit(run: Runtime, technique: str) -> None:
    kind, strategy = widest(technique, 0.2)
    losses = whole_and_in_parts(run, kind, strategy, dropout=0.2)
    assert closeness.ulps(losses, expected_losses(kind)) > 10 * closeness.ACROSS


def seen_under_autocast(build: Callable[[], nn.Module]) -> nn.Module:
    """A model whose every module refuses to run outside of autocast."""

    def refuse(module: nn.Module, *_: Any) -> None:
        if not torch.is_autocast_enabled("cpu"):
            raise RuntimeError(f"{type(module).__name__} runs outside of autocast")

    module = build()
    for part in module.modules():
        if not list(part.children()):
            part.register_forward_pre_hook(refuse)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("technique", BUILT_IN)
def test_bf16_is_autocast_under_every_technique(run: Runtime, technique: str) -> None:
    kind, strategy = widest(technique)
    build = partial(seen_under_autocast, partial(model_kinds.BUILD[kind], 0.0))
    losses = whole_and_in_parts(run, kind, strategy, precision="bf16", get_model=build)
    # Eight bits of a product are left; in which order parts are added shows in the last.
    in_bf16 = expected_losses(kind, precision="bf16")
    assert closeness.ulps(losses, in_bf16, of=torch.bfloat16) < 1.0
