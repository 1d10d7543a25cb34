"""The data of a task, as one rank reads it: its slice of every global batch, from any position.

The order of samples belongs to the task (see `sampling`), so a position is mainly two numbers: the
epoch, and the batch in it. A map-style dataset is read from there at once. A stream (an iterable
dataset, or any iterable of batches) is read in full by every rank, and cut. On resume it is read
again up to the position; a note tells the user how far that is and how long it took.

Moving a slice to a device is the business of `delivery`, and its weight in the loss of `training`.
"""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any

from torch.utils.data import DataLoader, IterableDataset, default_collate

from saturn.data import drawing, nested, seeds
from saturn.data.dealing import Dealing, Planned, bounds, own_part
from saturn.data.fetch import FetchKey, SliceDataset, WorkerStart, fetched
from saturn.data.sampling import EpochBatches, catch_up, num_batches
from saturn.data.stream_memory import StreamMemory
from saturn.rank.exceptions import TaskError
from saturn.rank.failure import task_function
from saturn.rank.hidden_group import hidden_group

#: Seconds between two notes on how far a stream has been read again.
_TELL_EVERY_S = 30.0
#: A sampler's passes that take less are not told of.
_TELL_AFTER_S = 1.0


@dataclass(frozen=True)
class Position:
    """A position in a task's data: `batch` of `epoch` comes next.

    Since the task began, `samples` samples have been seen, in `batches` batches of the loader.
    """

    epoch: int = 0
    batch: int = 0
    samples: int = 0
    batches: int = 0

    @classmethod
    def of(cls, manifest: Mapping[str, Any]) -> Position:
        """The position in a checkpoint's manifest, which has the fields of a position."""
        return cls(**{field.name: manifest[field.name] for field in fields(cls)})


@dataclass(frozen=True)
class Slice:
    """One data rank's part of one global batch."""

    batch: Any
    num_samples: int  # samples that count; 0 if this rank has none and `batch` is a stand-in
    num_global: int  # samples of the global batch
    after: Position  # the position once this batch is done
    step_batches: int | None = None  # batches of its step, if they were joined


class Data:
    """A task's loader, and the slices of it for one data rank."""

    def __init__(
        self,
        get_dataloader: Callable[[], Any],
        *,
        seed: int,
        pin_memory: bool = False,
        holds_several: bool = False,
        note: Callable[[str], None] = lambda text: None,
    ) -> None:
        """`holds_several` says whether a batch is still needed when the next one is fetched."""
        self._get_dataloader = get_dataloader
        self._seed = seed
        self._pin_memory = pin_memory  # whether pinning can help, which takes a GPU
        self._note = note
        self.loader = self._make_loader()
        self._copies = holds_several and self._may_overwrite
        #: Whether collating the task's first samples drew random numbers; set by `parts_of_first`.
        #: If so, a batch is collated whole before it is cut.
        self.draws_in_collating = False
        self._has_told_length = False
        self._first: Any = None  # the first batch of a stream, for `parts_of_first`

    @property
    def batches_per_epoch(self) -> int | None:
        """Batches in one pass; None for a loader without length."""
        return num_batches(self.loader)

    def slices(
        self, start: Position, *, data_rank: int = 0, data_size: int = 1
    ) -> Generator[Slice, None, None]:
        """This rank's slice of every batch from `start` on, over epochs, without end."""
        if self._is_map_style:
            return self._fetch(start, data_rank, data_size)
        return self._stream(start, data_rank, data_size)

    def steps(
        self,
        start: Position,
        next_step: Callable[[int], int],
        *,
        data_rank: int,
        data_size: int,
        deals: Callable[[Sequence[int]], bool] | None = None,
    ) -> Generator[list[Slice], None, None]:
        """This rank's slices of each step from `start` on, without end.

        `next_step` gives the number of batches of the next step, from the number of batches done.
        With `deals`, a step ends with its epoch. If `deals` allows it for the batches' sizes, they
        are joined and dealt as one (see `dealing`).
        """
        if deals is None or not self._is_map_style or self.loader.batch_sampler is None:
            slices = self.slices(start, data_rank=data_rank, data_size=data_size)
            done = start.batches
            with closing(slices):
                while True:
                    number = next_step(done)
                    yield [next(slices) for _ in range(number)]
                    done += number
        planned: deque[Planned] = deque()
        dealing = Dealing(next_step, data_rank, data_size, deals)
        fetched = self._fetched(start, self._step_keys(start, planned, dealing), planned)
        with closing(fetched):
            while True:
                of_step: list[tuple[Slice, Planned]] = []
                while not of_step or not of_step[-1][1].ends_step:
                    of_step.append(next(fetched))
                yield [piece for piece, _ in of_step]

    def parts_of_first(self, most: int) -> list[Any]:
        """The task's first samples, at most `most`: first all together, then in unequal parts.

        They are cut as slices are: a map-style dataset is fetched and collated part by part, in
        this process, even if the loader has workers. There are no parts if there is only one
        sample, or a batch of unknown size. Raises `CutError` if a batch can't be cut.
        """
        loader = self.loader
        if not self._is_map_style or loader.batch_sampler is None:
            if self._first is None:
                with closing(self.slices(Position())) as slices:
                    self._first = next(slices).batch
            batch = self._first
            if (size := nested.num_samples(batch)) is None:
                return [batch]
            return [nested.take(batch, low, high) for low, high in _parts(min(size, most))]
        indices = next(EpochBatches(loader, self._seed, 0))[:most]
        dataset = SliceDataset(loader.dataset, loader.collate_fn, self._seed, ready_made=False)
        with task_function("get_dataloader's dataset"):
            parts = [
                dataset[FetchKey(0, 0, indices, low, high)] for low, high in _parts(len(indices))
            ]
        self.draws_in_collating = dataset.draws_in_collating
        return parts

    def _make_loader(self) -> Any:
        seeds.seed_all(self._seed)
        with hidden_group(), task_function("get_dataloader"):
            loader = self._get_dataloader()
        if not hasattr(loader, "__iter__"):
            raise TaskError(
                f"get_dataloader returned a {type(loader).__name__}; it must return a DataLoader, "
                "or an iterable of batches"
            )
        return loader

    def _expect_length(self, found: int, epoch: int) -> None:
        """Tell the user once if an epoch has had another number of batches than the loader says."""
        said = self.batches_per_epoch
        if said in (None, found) or self._has_told_length:
            return
        self._has_told_length = True
        self._note(
            f"epoch {epoch} has had {found} batches, and the loader's length is {said}: `epochs` "
            f"are counted as {said} batches each"
        )

    @property
    def _is_map_style(self) -> bool:
        """Whether Saturn can sample for the loader: a DataLoader of torch, with indices."""
        loader = self.loader
        return (
            isinstance(loader, DataLoader)
            and type(loader).__iter__ is DataLoader.__iter__
            and not isinstance(loader.dataset, IterableDataset)
        )

    @property
    def _may_overwrite(self) -> bool:
        """Whether the loader may put the next batch into the memory of an earlier one.

        DALI and FFCV do so, as does a collate function that fills a buffer. Batches that come from
        worker processes, or that torch itself stacks or pins, are each in memory of their own.
        """
        loader = self.loader
        if not isinstance(loader, DataLoader) or type(loader).__iter__ is not DataLoader.__iter__:
            return True
        is_pinned = loader.pin_memory and self._pin_memory
        is_stacked = loader.collate_fn is default_collate
        return not (loader.num_workers > 0 or is_pinned or is_stacked)

    def _kept(self, batch: Any) -> Any:
        """The batch, safe from the loader: copied if the loader may overwrite it too early."""
        return nested.copied(batch) if self._copies else batch

    @property
    def _is_read_once(self) -> bool:
        """Whether the loader is an iterator, which can be read only once."""
        return hasattr(self.loader, "__next__")

    # For map-style datasets.

    def _fetch(
        self, start: Position, data_rank: int, data_size: int
    ) -> Generator[Slice, None, None]:
        ready_made = self.loader.batch_sampler is None
        planned: deque[Planned] = deque()
        cuts = (0, 1) if ready_made else (data_rank, data_size)
        keys = self._keys(start, planned, *cuts)
        cut = (data_rank, data_size) if ready_made else None
        with closing(self._fetched(start, keys, planned, cut)) as slices:
            for piece, _ in slices:
                yield piece

    def _fetched(
        self,
        start: Position,
        epochs: Iterator[Iterator[FetchKey]],
        planned: deque[Planned],
        cut: tuple[int, int] | None = None,
    ) -> Generator[tuple[Slice, Planned], None, None]:
        """Each key's slice, with its plan; with `cut`, ready-made batches are cut so."""
        batches_of = self._batches(epochs)
        samples, batches = start.samples, start.batches
        while True:
            with hidden_group(), task_function("get_dataloader's loader"):
                batch = self._kept(next(batches_of))
            plan = planned.popleft()
            if cut is not None:
                piece, counted, size = _cut(batch, *cut)
                passed = size
            else:
                piece, counted, size = batch, plan.num_samples, plan.num_global
                passed = size if plan.passed is None else plan.passed
            samples, batches = samples + passed, batches + plan.batches
            after = Position(plan.epoch, plan.batch, samples, batches)
            yield Slice(piece, counted, size, after, plan.step_batches), plan

    def _batches(self, epochs: Iterator[Iterator[FetchKey]]) -> Iterator[Any]:
        """The keys' batches, from one loader for all epochs, which prefetches across their ends."""
        if not getattr(self.loader.batch_sampler, "follows_stream", False):
            epochs = iter([itertools.chain.from_iterable(epochs)])
        # For such samplers, the order of an epoch is known only when the epoch begins.
        for keys in epochs:
            yield from fetched(self.loader, keys, self._seed, pin_memory=self._pin_memory)

    def _keys(
        self,
        start: Position,
        planned: deque[Planned],
        data_rank: int,
        data_size: int,
    ) -> Iterator[Iterator[FetchKey]]:
        """What to fetch, in order, by epochs; each slice's size is added to `planned`."""

        def of_epoch(epoch: int, first: int) -> Iterator[FetchKey]:
            position = 0
            batches = EpochBatches(self.loader, self._seed, epoch)
            for number, indices in enumerate(batches):
                size = len(indices)
                if number >= first:
                    low, high = bounds(size, data_rank, data_size)
                    after = (epoch + 1, 0) if batches.is_over else (epoch, number + 1)
                    planned.append(Planned(high - low, size, *after))
                    yield FetchKey(epoch, position, indices, *own_part(low, high))
                position += size
            self._expect_length(number + 1, epoch)

        return itertools.starmap(of_epoch, self._epochs_from(start))

    def _step_keys(
        self, start: Position, planned: deque[Planned], dealing: Dealing
    ) -> Iterator[Iterator[FetchKey]]:
        """What to fetch, step by step, by epochs; each slice's size is added to `planned`."""
        done = start.batches

        def of_epoch(epoch: int, first: int) -> Iterator[FetchKey]:
            nonlocal done
            batches = EpochBatches(self.loader, self._seed, epoch)
            position = sum(map(len, islice(batches, first)))
            while not batches.is_over:
                number = dealing.next_step(done)
                of_step = list(islice(batches, number))
                end = first + number
                after = (epoch + 1, 0) if batches.is_over else (epoch, end)
                yield from dealing.keys(of_step, epoch, first, position, after, planned)
                first, done = end, done + number
                position += sum(map(len, of_step))
            self._expect_length(first, epoch)

        return itertools.starmap(of_epoch, self._epochs_from(start))

    def _epochs_from(self, start: Position) -> Iterator[tuple[int, int]]:
        """(epoch, first batch to read) for each epoch from `start` on."""
        began = time.monotonic()
        passes = catch_up(self.loader, self._seed, start.epoch)
        if (taken_s := time.monotonic() - began) > _TELL_AFTER_S:
            self._note(
                f"made {passes} passes of the loader's sampler again to reach where training "
                f"stands: {taken_s:.1f} s (torch's own samplers need none)"
            )
        yield start.epoch, start.batch
        for epoch in itertools.count(start.epoch + 1):
            yield epoch, 0

    # For streams.

    def _stream(
        self, start: Position, data_rank: int, data_size: int
    ) -> Generator[Slice, None, None]:
        samples, batches = start.samples, start.batches
        memory = StreamMemory(self.loader)
        began = told = time.monotonic()
        number, epoch, iterator = 0, start.epoch, self._open_stream(start.epoch)
        while True:
            batch, found = self._next_of_stream(iterator, epoch, number)
            if not found:
                if number == 0:
                    raise TaskError(
                        f"get_dataloader's loader gave no batch in epoch {epoch}; it must give "
                        "batches each time it is iterated"
                    )
                self._expect_length(number, epoch)
                memory.passed(self.loader, self._note)
                epoch, number = epoch + 1, 0
                iterator = self._open_stream(epoch)
                continue
            number += 1
            if epoch == start.epoch and number <= start.batch:
                now = time.monotonic()
                if number == start.batch:
                    self._note(
                        f"read {number} batches of the stream again to reach where training "
                        f"stands: {now - began:.1f} s (a map-style dataset would start there at "
                        "once)"
                    )
                elif now - told >= _TELL_EVERY_S:
                    told = now
                    self._note(
                        f"reading the stream again to reach where training stands: {number} of "
                        f"{start.batch} batches after {now - began:.0f} s"
                    )
                continue
            piece, counted, size = _cut(batch, data_rank, data_size)
            samples, batches = samples + size, batches + 1
            # Only reading on shows the end of an epoch, so a position may be just past it.
            yield Slice(piece, counted, size, Position(epoch, number, samples, batches))

    def _open_stream(self, epoch: int) -> Iterator[Any]:
        loader = self.loader
        if self._is_read_once and epoch > 0:
            # An iterator can be read only once, so each further epoch needs a new one.
            loader = self.loader = self._make_loader()
        if isinstance(loader, DataLoader):
            loader.pin_memory = loader.pin_memory and self._pin_memory
            if loader.num_workers > 0 and not isinstance(loader.worker_init_fn, WorkerStart):
                loader.worker_init_fn = WorkerStart(loader.worker_init_fn)
            if loader.generator is not None:
                loader.generator.manual_seed(seeds.epoch_seed(self._seed, epoch))
            if _tell_epoch(loader.dataset, epoch) and loader.persistent_workers:
                loader._iterator = None  # persistent workers have old copies of the dataset
        _tell_epoch(loader, epoch)
        epoch_seed = seeds.epoch_seed(self._seed, epoch)
        for generator in drawing.generators_in((loader, getattr(loader, "dataset", None))):
            drawing.seed_generator(generator, epoch_seed)
        seeds.seed_fetch(epoch_seed)
        with hidden_group(), task_function("get_dataloader's loader"):
            return iter(loader)

    def _next_of_stream(self, iterator: Iterator[Any], epoch: int, number: int) -> tuple[Any, bool]:
        # A stream read in this process draws from the same generators as the model.
        seeds.seed_fetch(seeds.sample_seed(self._seed, epoch, number))
        with hidden_group(), task_function("get_dataloader's loader"):
            try:
                return self._kept(next(iterator)), True
            except StopIteration:
                return None, False


def _tell_epoch(part: Any, epoch: int) -> bool:
    """Tell a dataset or loader the next epoch, if it wants to know; returns whether it does."""
    set_epoch = getattr(part, "set_epoch", None)
    if not callable(set_epoch):
        return False
    with task_function("get_dataloader's set_epoch"):
        set_epoch(epoch)
    return True


def _cut(batch: Any, data_rank: int, data_size: int) -> tuple[Any, int, int]:
    """(slice, samples that count in it, samples in all) of a ready-made batch."""
    if data_size == 1:
        size = nested.num_samples(batch) or 1  # a batch of unknown size counts as one sample
        return batch, size, size
    size = nested.num_samples(batch) or 0
    low, high = bounds(size, data_rank, data_size)
    piece = nested.take(batch, low, high) if low < high else nested.take(batch, 0, 1)
    return piece, high - low, size


def _parts(size: int) -> list[tuple[int, int]]:
    """The bounds of all `size` samples, then of their parts: the fewest slices of unequal size.

    A single sample makes no parts.
    """
    if size < 2:
        return [(0, size)]
    number = next((n for n in range(2, size) if size % n), 2)
    return [(0, size), *(bounds(size, part, number) for part in range(number))]
