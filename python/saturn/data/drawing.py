"""Which random generators fetching and collating draw from, and whether they have drawn.

These are torch's, Python's and numpy's global generators, and all generators that a dataset or a
collate function holds, in a transform or made at its first call.
"""

from __future__ import annotations

import pickle
import random
import sys
from collections.abc import Iterator
from typing import Any

import torch

from saturn.data import seeds
from saturn.data.held import objects_in
from saturn.data.seeds import RandomState

_CPU = torch.device("cpu")


class Drawing:
    """All generators that one function draws from, including those of its objects."""

    def __init__(self, *holders: Any) -> None:
        """`holders` are the function and its objects."""
        self._holders = holders
        self._own = list(generators_in(holders))

    def look_again(self) -> bool:
        """Look for generators that were made since; returns whether there are new ones."""
        before = set(map(id, self._own))
        self._own = list(generators_in(self._holders))
        return any(id(generator) not in before for generator in self._own)

    def seed(self, seed: int) -> None:
        """Seed all generators."""
        seeds.seed_fetch(seed)
        for generator in self._own:
            seed_generator(generator, seed)

    def now(self) -> tuple[RandomState, bytes]:
        """The states of all generators, for `has_drawn`."""
        return RandomState.now(_CPU), self._states()

    def has_drawn(self, since: tuple[RandomState, bytes]) -> bool:
        """Whether any generator was drawn from, or seeded, since `now` returned this."""
        state, own = since
        return state.has_moved() or own != self._states()

    def _states(self) -> bytes:
        return b"".join(
            state.numpy().tobytes() if isinstance(state, torch.Tensor) else pickle.dumps(state)
            for state in map(state_of, self._own)
        )


def is_generator(value: Any) -> bool:
    """Whether `value` is a random generator of torch, Python or numpy."""
    return isinstance(value, torch.Generator | random.Random | _of_numpy())


def generators_of(module: torch.nn.Module) -> list[Any]:
    """The generators in attributes of a model's parts."""
    held = (value for part in module.modules() for value in vars(part).values())
    return [value for value in held if is_generator(value)]


def _of_numpy() -> Any:
    numpy = sys.modules.get("numpy")
    return () if numpy is None else numpy.random.Generator | numpy.random.RandomState


def seed_generator(generator: Any, seed: int) -> None:
    """Seed one generator."""
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif isinstance(generator, random.Random):
        generator.seed(seed)
    elif hasattr(generator, "bit_generator"):
        bits = generator.bit_generator
        bits.state = type(bits)(seed).state
    else:  # numpy's older kind
        generator.seed(seed & 0xFFFF_FFFF)


def state_of(generator: Any) -> Any:
    """The state of one generator, for `set_state`."""
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if hasattr(generator, "bit_generator"):
        return generator.bit_generator.state
    return generator.get_state()


def set_state(generator: Any, state: Any) -> None:
    """Put one generator back into a state."""
    if isinstance(generator, random.Random):
        generator.setstate(state)
    elif hasattr(generator, "bit_generator"):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def generators_in(holders: tuple[Any, ...]) -> Iterator[Any]:
    """All generators that objects hold: in attributes, containers, closures; each once."""
    return filter(is_generator, objects_in(holders, is_end=is_generator))
