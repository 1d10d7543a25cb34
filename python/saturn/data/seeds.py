"""The source of every random number of a task: its seed, and nothing about the plan.

* `get_model` and `get_dataloader` each run after `seed_all(task seed)`;
* epoch `e` is sampled after `seed_all(epoch_seed(task seed, e))`, with every generator that the
  samplers hold seeded alike;
* the sample at position `p` of epoch `e` is fetched after `seed_fetch(sample_seed(seed, e, p))`,
  so a random augmentation is the same whichever rank fetches it;
* the batch whose first sample is at position `p` of epoch `e` is collated after
  `seed_fetch(collate_seed(seed, e, p))`. Both seeds are also for generators that a dataset or a
  collate function holds (see `drawing`);
* the forward on batch `b`, counted from the task's first, on data rank `r` runs after
  `seed_batch(batch_seed(seed, b, r))`, so dropout is the same whenever that layout computes `b`;
* an optimizer that isn't torch's steps after `seed_batch(optimizer_seed(seed, b))`, where `b`
  batches are done, so all ranks draw the same.

Generator states are never saved, except for tasks that draw from one stream (`training.draws`): a
resumed task seeds its generators anew, and draws the same numbers.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import random
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import torch


def derive(*parts: int | str) -> int:
    """A 63-bit seed that depends on every part, the same on every machine."""
    text = "/".join(str(part) for part in parts)
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def epoch_seed(seed: int, epoch: int) -> int:
    """The seed for sampling epoch `epoch` of a task."""
    return derive(seed, "epoch", epoch)


def sample_seed(seed: int, epoch: int, position: int) -> int:
    """The seed for fetching the sample at `position` of an epoch."""
    return derive(seed, "sample", epoch, position)


def collate_seed(seed: int, epoch: int, position: int) -> int:
    """The seed for collating the batch whose first sample is at `position` of an epoch."""
    return derive(seed, "collate", epoch, position)


def batch_seed(seed: int, number: int, data_rank: int) -> int:
    """The seed for the forward on one data rank's slice of a batch.

    `number` counts the task's batches from 0, over epochs.
    """
    return derive(seed, "batch", number, data_rank)


def optimizer_seed(seed: int, batches: int) -> int:
    """The seed for the optimizer's step after `batches` batches, the same on every rank."""
    return derive(seed, "optimizer", batches)


def seed_all(seed: int) -> None:
    """Seed torch (all devices), `random` and numpy."""
    torch.manual_seed(seed)
    _seed_python(seed)


def seed_fetch(seed: int) -> None:
    """Seed the CPU generators, which fetching may use. Called for every sample, so it is cheap."""
    torch.default_generator.manual_seed(seed)
    _seed_python(seed)


def seed_batch(seed: int, device: torch.device) -> None:
    """Seed what a forward on `device` may use; without an index, all devices of its kind."""
    seed_fetch(seed)
    if device.type != "cpu":
        module = torch.get_device_module(device)
        (module.manual_seed_all if device.index is None else module.manual_seed)(seed)


def _seed_python(seed: int) -> None:
    random.seed(seed)
    if (numpy := sys.modules.get("numpy")) is not None:
        numpy.random.seed(seed & 0xFFFF_FFFF)


def _equal(one: Any, other: Any) -> bool:
    """Whether two parts of a numpy generator's state are the same."""
    return bool(all(one == other)) if hasattr(one, "shape") else bool(one == other)


def _text(state: torch.Tensor) -> str:
    return base64.b64encode(state.numpy().tobytes()).decode()


def _bytes(text: str) -> torch.Tensor:
    return torch.frombuffer(bytearray(base64.b64decode(text)), dtype=torch.uint8)


@dataclass(frozen=True)
class RandomState:
    """The state of all generators that a forward may use, at one moment."""

    device: torch.device
    _torch: torch.Tensor
    _of_device: torch.Tensor | None
    _python: Any
    _numpy: Any

    @classmethod
    def now(cls, device: torch.device) -> RandomState:
        """The present state of the CPU generators, and of the generator of `device`."""
        numpy = sys.modules.get("numpy")
        return cls(
            device,
            torch.default_generator.get_state(),
            None if device.type == "cpu" else torch.get_device_module(device).get_rng_state(device),
            random.getstate(),
            None if numpy is None else numpy.random.get_state(),
        )

    def set(self) -> None:
        """Restore the generators to this state."""
        torch.default_generator.set_state(self._torch)
        if self._of_device is not None:
            torch.get_device_module(self.device).set_rng_state(self._of_device, self.device)
        random.setstate(self._python)
        if self._numpy is not None:
            sys.modules["numpy"].random.set_state(self._numpy)

    def has_moved(self) -> bool:
        """Whether any generator's state has changed since: something has drawn, or seeded."""
        now = RandomState.now(self.device)
        same = torch.equal(self._torch, now._torch)
        if self._of_device is not None and now._of_device is not None:
            same = same and torch.equal(self._of_device, now._of_device)
        if same and self._numpy is not None:
            same = all(map(_equal, self._numpy, now._numpy))
        return not same or self._python != now._python

    def with_device(self, other: RandomState) -> RandomState:
        """This state for the CPU, with the device and its state from `other`."""
        return replace(self, device=other.device, _of_device=other._of_device)

    def as_json(self) -> dict[str, Any]:
        """This state as plain data for `from_json`."""
        numpy = self._numpy
        return {
            "torch": _text(self._torch),
            "device": None if self._of_device is None else _text(self._of_device),
            "python": [self._python[0], list(self._python[1]), self._python[2]],
            "numpy": None if numpy is None else [numpy[0], numpy[1].tolist(), *numpy[2:]],
        }

    @classmethod
    def from_json(cls, data: Any, device: torch.device) -> RandomState:
        """Read `as_json`'s data, for `device`; a generator without data keeps its present state."""
        now = cls.now(device)
        of_device, numpy = data["device"], data["numpy"]
        version, words, gauss = data["python"]
        if device.type == "cpu" or of_device is None:
            of_device = now._of_device
        else:
            of_device = _bytes(of_device)
        if numpy is not None and now._numpy is not None:
            kind, keys, *rest = numpy
            numpy = (kind, sys.modules["numpy"].array(keys, dtype="uint32"), *rest)
        else:
            numpy = now._numpy
        return cls(device, _bytes(data["torch"]), of_device, (version, tuple(words), gauss), numpy)

    @contextlib.contextmanager
    def again(self) -> Iterator[None]:
        """Within this context the state holds again; afterwards generators go on as before it."""
        before = RandomState.now(self.device)
        self.set()
        try:
            yield
        finally:
            before.set()


@contextlib.contextmanager
def forked(device: torch.device | None = None) -> Iterator[None]:
    """Within this context code may draw and seed; afterwards the generators are restored.

    These are the CPU generators, and the generator of `device`.
    """
    before = RandomState.now(device or torch.device("cpu"))
    try:
        yield
    finally:
        before.set()
