"""Chains of strategies for one task, drawn from a seed, and what comes of them.

A chain is a task of some kind, with an optimizer and options of some kind, and a few strategies one
after the other that train it to its end. Which strategies there are, the library says: each of its
techniques is asked whether it applies, and for its knobs.
"""

from __future__ import annotations

import functools
import importlib
import random
import shutil
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import closeness
import model_kinds
import reference
import torch
from harness import Runtime
from saturn.checkpoint import manifest
from saturn.tasks.definition import TaskDefinition
from saturn.techniques import BUILT_IN, Knobs, Setting, Technique
from saturn.techniques.pipeline.stages import split
from torch import nn
from torch.distributed.checkpoint import FileSystemReader, load
from torch.optim import SGD, AdamW, RMSprop, lr_scheduler

KINDS = ("gpt2", "llama", "mixtral", "vit", "residual", "sequential", "tied", "frozen")
RANKS = (1, 2, 3, 4, 6, 8)
#: Gangs of more ranks take long on few cores: a small share, where a technique runs on fewer too.
WIDE, SHARE_OF_WIDE = 4, 0.08
#: Largest difference of a loss, or a weight, from plain torch's.
#: Adam and its like divide a gradient by its own size. Gradients that are nothing but rounding
#: (those of an attention's key biases) would come out as large as any other, so eps is.
OPTIMIZERS = {
    "adamw": (partial(AdamW, eps=1e-3), 0.01),
    "rmsprop": (partial(RMSprop, eps=1e-3, momentum=0.5), 0.003),
    "momentum": (partial(SGD, momentum=0.9, nesterov=True), 0.02),
    "sgd": (SGD, 0.1),
}
SCHEDULERS = ("none", "one-cycle", "warm-up", "lambda")


@dataclass(frozen=True)
class Strategy:
    technique: str
    ranks: int
    knobs: tuple[tuple[str, Any], ...] = ()
    device_kind: str = "cpu"
    #: Ranks on each node, where they are on several.
    node_gpus: tuple[int, ...] = ()

    def __str__(self) -> str:
        knobs = ",".join(f"{key}={value}" for key, value in self.knobs)
        where = "" if self.device_kind == "cpu" else f" on {self.device_kind}"
        where += f" across {self.node_gpus}" if self.node_gpus else ""
        return f"{self.technique}x{self.ranks}" + (f"({knobs})" if knobs else "") + where


@dataclass(frozen=True)
class Move:
    """Train under a strategy until so many steps of the task are done."""

    strategy: Strategy
    until: int


@dataclass(frozen=True)
class Chain:
    seed: int
    kind: str
    batch_size: int
    options: dict[str, Any]  # in words, for people
    task: TaskDefinition
    moves: tuple[Move, ...]
    #: (number of a move, step): where training stops and goes on under the same strategy.
    stop: tuple[int, int] | None

    @property
    def steps(self) -> int:
        return self.moves[-1].until

    def __str__(self) -> str:
        moves = " → ".join(f"{move.strategy} until {move.until}" for move in self.moves)
        options = " ".join(f"{key}={value}" for key, value in self.options.items())
        stop = "" if self.stop is None else f", stopping at {self.stop[1]}"
        return f"seed {self.seed}: {self.kind} batch={self.batch_size} {options}: {moves}{stop}"


def draw(seed: int, device_kinds: Sequence[str] = ("cpu",)) -> Chain:
    """The chain of a seed: kinds in turn, the rest by chance; each move on any kind of device."""
    rng = random.Random(seed)
    turn, kind_number = divmod(seed, len(KINDS))
    kind = KINDS[kind_number]
    batch_size = rng.choice((5, 6, 7, 8))
    steps = rng.randint(7, 11)
    optimizer = rng.choice(list(OPTIMIZERS))
    scheduler = rng.choice(SCHEDULERS)
    together = rng.choice((1, 1, 2, 3))
    norm = rng.choice((None, 0.3, 1.0))
    optimizer_cls, lr = OPTIMIZERS[optimizer]
    task = model_kinds.task_of(
        kind,
        batch_size=batch_size,
        optimizer_cls=optimizer_cls,
        lr=lr,
        lr_scheduler=_scheduler(scheduler, lr, steps, optimizer),
        gradient_accumulation_steps=together,
        batch_count=steps * together - rng.randrange(together),
        max_grad_norm=norm,
        seed=rng.randrange(10**6),
    )
    options = {
        "optimizer": optimizer,
        "scheduler": scheduler,
        "accumulate": together,
        "clip": norm,
    }
    moves: list[Move] = []
    techniques = _techniques(kind, turn, rng, num_moves=rng.randint(3, min(6, steps)))
    ends = [*sorted(rng.sample(range(1, steps), len(techniques) - 1)), steps]
    for technique, end in zip(techniques, ends, strict=True):
        device_kind = device_kinds[0] if len(device_kinds) == 1 else rng.choice(device_kinds)
        offered = strategies(kind, device_kind=device_kind)
        fresh = [each for each in offered[technique] if not moves or moves[-1].strategy != each]
        others = [each for name in offered for each in offered[name]]
        chosen = some_wide(fresh or others, rng)
        # Few models are deep enough for every schedule.
        schedule = rng.choice(sorted({_schedule(each) for each in chosen}))
        moves.append(Move(rng.choice([s for s in chosen if _schedule(s) == schedule]), end))
    starts = [0, *ends]
    long = [i for i in range(len(moves)) if ends[i] - starts[i] > 1]
    stop = None
    if long:
        number = rng.choice(long)
        stop = (number, rng.randrange(starts[number] + 1, ends[number]))
    return Chain(seed, kind, batch_size, options, task, tuple(moves), stop)


def across_nodes(chain: Chain) -> Chain:
    """The same chain on two nodes: each move on one of them, or on both where it can be.

    `fsdp` on nodes that are alike sometimes copies over them in place of splitting.
    """
    rng = random.Random(chain.seed)
    moves = []
    for move in chain.moves:
        strategy = move.strategy
        of_group = _tensor_size(strategy)
        firsts = [n for n in range(of_group, strategy.ranks, of_group) if 2 * n >= strategy.ranks]
        if firsts and rng.random() < 0.8:
            first = rng.choice(firsts)
            node_gpus = (first, strategy.ranks - first)
            knobs = dict(strategy.knobs)
            if strategy.technique == "fsdp" and first * 2 == strategy.ranks:
                knobs["replicate_across_nodes"] = rng.random() < 0.5
            knobs_of = tuple(sorted(knobs.items()))
            strategy = replace(strategy, node_gpus=node_gpus, knobs=knobs_of)
        moves.append(replace(move, strategy=strategy))
    return replace(chain, moves=tuple(moves))


def _tensor_size(strategy: Strategy) -> int:
    """How many ranks must be on one node together."""
    if strategy.technique == "tensor":
        return strategy.ranks
    return int(dict(strategy.knobs).get("tensor", 1))


def some_wide(offered: Sequence[Strategy], rng: random.Random) -> Sequence[Strategy]:
    """Those of a few ranks, or, seldom or where there are none, those of many."""
    few = [each for each in offered if each.ranks <= WIDE]
    many = [each for each in offered if each.ranks > WIDE]
    return (few or many) if not many or rng.random() > SHARE_OF_WIDE else many


def _techniques(kind: str, turn: int, rng: random.Random, *, num_moves: int) -> list[str]:
    """Three of a shuffled deck of the kind's techniques, which the next turn goes on with.

    What few kinds can train comes first, and then any others in between.
    """
    deck = sorted(strategies(kind))
    turns = -(-len(deck) // 3)
    random.Random(f"{kind} {turn // turns}").shuffle(deck)
    deck.sort(key=lambda name: sum(name in strategies(each) for each in KINDS))
    chosen = [deck[(turn % turns * 3 + number) % len(deck)] for number in range(3)]
    rng.shuffle(chosen)
    for _ in range(num_moves - 3):
        chosen.insert(rng.randint(0, len(chosen)), rng.choice(deck))
    return chosen


def _schedule(strategy: Strategy) -> str:
    return dict(strategy.knobs).get("schedule", "")


def _scheduler(name: str, lr: float, steps: int, optimizer: str) -> Any:
    if name == "one-cycle":
        cycles = optimizer != "sgd"  # which has no momentum
        return partial(
            lr_scheduler.OneCycleLR, max_lr=2 * lr, total_steps=steps, cycle_momentum=cycles
        )
    if name == "lambda":
        return partial(lr_scheduler.LambdaLR, lr_lambda=lambda step: 1.0 / (1 + 0.3 * step))
    return warm_up if name == "warm-up" else None


def warm_up(optimizer: torch.optim.Optimizer) -> lr_scheduler.LRScheduler:
    rise = lr_scheduler.LinearLR(optimizer, start_factor=0.2, total_iters=3)
    fall = lr_scheduler.CosineAnnealingLR(optimizer, T_max=5)
    return lr_scheduler.SequentialLR(optimizer, [rise, fall], milestones=[3])


@functools.cache
def strategies(
    kind: str, dropout: float = 0.0, device_kind: str = "cpu"
) -> dict[str, list[Strategy]]:
    """By technique, those that the library offers for a kind of model."""
    module = model_kinds.BUILD[kind](dropout)
    every = {
        name: list(_with_other_cuts(strategies_of(name, module, device_kind, RANKS), module))
        for name in BUILT_IN
    }
    return {name: offered for name, offered in every.items() if offered}


def strategies_of(
    technique: str, module: nn.Module, device_kind: str, widths: Sequence[int]
) -> list[Strategy]:
    """What a technique offers for a model on so many devices."""
    return [
        Strategy(technique, ranks, tuple(sorted(knobs.items())), device_kind)
        for ranks in widths
        for knobs in _knob_sets(technique_of(technique), module, ranks, device_kind)
    ]


def _with_other_cuts(offered: Sequence[Strategy], module: nn.Module) -> Iterator[Strategy]:
    """Of pipelines also a most uneven cut, as a trial may propose where layers take so."""
    for one in offered:
        yield one
        knobs = dict(one.knobs)
        if "schedule" not in knobs or "cut" in knobs:
            continue
        num_stages = knobs.get("stages") or one.ranks // knobs.get("tensor", 1)
        num_stages *= 2 if knobs["schedule"] == "interleaved" else 1
        num_layers = len(split(module, num_stages).layers)
        if num_layers > num_stages:
            ones = [1] * (num_stages - 2)
            knobs["cut"] = [*ones, num_layers - num_stages + 1, 1]
            yield replace(one, knobs=tuple(sorted(knobs.items())))


def covering(offered: Sequence[Strategy]) -> list[Strategy]:
    """Every width once, and every knob set once."""
    chosen: list[Strategy] = []
    for one in offered:
        widths, knobs = {each.ranks for each in chosen}, {each.knobs for each in chosen}
        if one.ranks not in widths or one.knobs not in knobs:
            chosen.append(one)
    return chosen


def technique_of(name: str) -> Technique:
    module, _, cls = BUILT_IN[name].partition(":")
    technique: Technique = getattr(importlib.import_module(module), cls)()
    return technique


def _knob_sets(
    technique: Technique, module: nn.Module, ranks: int, device_kind: str
) -> Iterator[Knobs]:
    # Some techniques are for devices that are too small.
    for memory in (None, 1):
        setting = Setting(gpus=ranks, device_kind=device_kind, hints={}, device_memory_bytes=memory)
        if technique.not_applicable(module, setting) is None:
            yield from technique.knob_sets(module, setting)
            for rung in technique.thriftier_knob_sets(module, setting):
                yield from rung
            return


def play(run: Runtime, chain: Chain, *moves: Move) -> dict[int, float]:
    """Train the task on through the moves; returns the loss by step number from 1."""
    for move in moves:
        strategy = move.strategy
        result = run.run(
            chain.task.name,
            strategy.technique,
            ranks=strategy.ranks,
            knobs=dict(strategy.knobs),
            device_kind=strategy.device_kind,
            steps=move.until,
            node_gpus=strategy.node_gpus,
        )
        assert result.codes == [0] * strategy.ranks, f"{chain}\nat {move}\n{result.logs}"
        assert result.one("finished")["step"] == move.until, chain
    return run.losses(chain.task.name)


def weights(checkpoints_dir: Path, like: nn.Module) -> tuple[int, dict[str, torch.Tensor]]:
    """(step, model's state) of the newest checkpoint; `like` says names and shapes."""
    newest = manifest.newest_valid(checkpoints_dir)
    assert newest is not None
    state = {name: torch.zeros_like(tensor) for name, tensor in like.state_dict().items()}
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        load({"model": state}, storage_reader=FileSystemReader(newest[0]), no_dist=True)
    return newest[1]["step"], state


def assert_trains_as_plain_torch_does(run: Runtime, chain: Chain) -> None:
    """Play the chain; its losses and weights are those of plain torch on one CPU."""
    print(chain)
    of_losses, of_weights, worst = departures(run, chain)
    print(f"losses within {of_losses:.1f} ulps, weights within {of_weights:.1f} ({worst})")
    assert of_losses < closeness.ACROSS, chain
    assert of_weights < closeness.ACROSS, f"{worst}; {chain}"


def departures(run: Runtime, chain: Chain) -> tuple[float, float, str]:
    """Play the chain: ulps from plain torch's losses, and weights, on one CPU; and which weight."""
    run.write_task(chain.task)
    for number, move in enumerate(chain.moves):
        if chain.stop is not None and chain.stop[0] == number:
            _stop_and_go_on(run, chain, move, chain.stop[1])
        else:
            play(run, chain, move)
    loss_of = model_kinds.loss_of(chain.task)
    expected, model = reference.train(chain.task, chain.steps, loss_of=loss_of)
    of_losses = closeness.ulps(run.losses(chain.task.name), expected)
    step, state = newest(run, chain)
    assert step == chain.steps
    of_weights = closeness.by_name(state, model.state_dict())
    worst = max(of_weights, key=of_weights.__getitem__)
    return of_losses, of_weights[worst], worst


def _stop_and_go_on(run: Runtime, chain: Chain, move: Move, step: int) -> None:
    """Train through a move with a stop at `step`: bit for bit as without."""
    directory = run.task_dir(chain.task.name)
    before = directory.with_name("before")
    shutil.copytree(directory, before)
    expected = play(run, chain, move), newest(run, chain)
    shutil.rmtree(directory)
    before.rename(directory)
    losses = play(run, chain, Move(move.strategy, step), move)
    assert losses == expected[0], chain
    _, state = newest(run, chain)
    for name, tensor in expected[1][1].items():
        assert torch.equal(state[name], tensor), f"{name}; {chain}"


def newest(run: Runtime, chain: Chain) -> tuple[int, dict[str, torch.Tensor]]:
    """(step, model's state) of the task's newest checkpoint."""
    directory = run.task_dir(chain.task.name) / "checkpoints"
    return weights(directory, chain.task.get_model())
