"""Save and load the training state of a managed task, under any layout.

The state is the model's and the optimizer's tensors by unsplit parameter names, in PyTorch's
distributed checkpoint format (DCP). So any technique loads any other's checkpoints. Learning rates
and other group settings belong to the task, and are rebuilt. Only settings that changed since are
stored (see `optimizer_groups`, `lr_schedule`, `loss_scale`). Random streams are seeded anew (see
`seeds`). Non-persistent buffers stay as the model built them. Weights that don't train are written
once (see `kept`).

A save may run in the background: the state is copied to host memory, training goes on, and a thread
of each rank writes. On GPUs saves do so. On CPU slots they do so only if saving mostly waits for
the disk, since copying, digesting and writing need the core that trains. At most one save runs at a
time. If a background save fails, only that save is lost. The next save is then made while training
waits, and if that fails too, the attempt fails.

Which directories are valid, and how one is committed, is the business of `manifest`.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load as load_distributed
from torch.distributed.checkpoint.state_dict_saver import save as save_distributed
from torch.distributed.checkpoint.storage import StorageReader, WriteResult
from torch.distributed.tensor import DTensor

from saturn.checkpoint import best, manifest
from saturn.checkpoint.background_save import BackgroundSave, Save
from saturn.checkpoint.black_box_state import saved_model
from saturn.checkpoint.kept import Kept, KeptWriter, bit_sum, frozen_names, kept_names, saved_name
from saturn.checkpoint.late_buffers import make_room
from saturn.checkpoint.optimizer_state import OPTIONS, OptimizerRoom, tensors_of
from saturn.checkpoint.place import Directory
from saturn.checkpoint.reader import reader_of
from saturn.checkpoint.staging import StagingPlanner
from saturn.checkpoint.starting import shape_text
from saturn.checkpoint.writer import CheckpointWriter, Digest
from saturn.data.slices import Position
from saturn.plain.measures import plain
from saturn.rank.exceptions import TaskError
from saturn.rank.gang import Gang
from saturn.rank.memory import available_host_bytes
from saturn.techniques.interface import ParallelModel
from saturn.training.draws import Draws
from saturn.training.loss_scale import LossScale
from saturn.training.lr_schedule import LrSchedule
from saturn.training.optimizer_groups import OptimizerGroups

#: Prefixes of the entries of model and optimizer in DCP's index.
_MODEL = "model."
_OPTIMIZER = "optimizer."
#: Smaller states are written before a thread would pay.
_LEAST_BACKGROUND_BYTES = 16 << 20
#: On a CPU slot, the next save goes to the background if this one spent at least this share of its
#: time waiting, mostly for the disk. Computing takes the same core either way.
_LEAST_WAITING_SHARE = 0.5
#: Share of the host's free memory that copies of the state may take, over all ranks.
_STAGED_SHARE = 0.5


class Checkpoints:
    """The checkpoints of one task, as one rank of a gang writes and reads them."""

    def __init__(
        self,
        directory: Directory,
        gang: Gang,
        about: Mapping[str, Any],
        groups: OptimizerGroups,
        lr_schedule: LrSchedule,
        loss_scale: LossScale | None,
        draws: Draws | None = None,
        *,
        may_stage: bool = True,
    ) -> None:
        """`about` has the manifest's other fields; without `may_stage`, training always waits."""
        self._directory = directory
        self._gang = gang
        self._groups = groups  # of the optimizer that is saved and loaded here
        self._lr_schedule = lr_schedule  # the schedule of the same optimizer
        self._loss_scale = loss_scale  # None if the loss isn't scaled
        self._draws = draws  # None if each batch is seeded
        self._about = dict(about)
        self._may_stage = may_stage
        self._room: dict[Any, torch.Tensor] = {}  # memory of staged copies, kept between saves
        self._running: BackgroundSave | None = None
        self._last_failed = False
        self._is_worth_it = gang.device.type == "cuda"
        self._ended: list[Save] = []
        self._num_saves = 0  # how many saves were begun
        #: The checksum of the weights that don't train, if a checkpoint has them. Only rank 0
        #: knows which checkpoint.
        self._frozen_sum: int | None = None
        self._kept: Kept | None = None
        expect_no_process_group()

    def save(
        self,
        parallel: ParallelModel,
        optimizer: torch.optim.Optimizer,
        *,
        step: int,
        position: Position,
        loss: float,
        evaluation: Mapping[str, Any] | None = None,
        is_best: bool = False,
        listener: Mapping[str, Any] | None = None,
        background: bool = False,
    ) -> None:
        """Save after `step` finished steps; every rank calls this. `take_ended` has the outcome.

        `evaluation` and rank 0's `listener` go into the manifest. With `is_best`, the checkpoint
        is also kept as the best.

        First waits for a save in the background. With `background`, this save may go to the
        background too. Otherwise its errors are raised, on every rank.
        """
        began = time.monotonic()
        self.wait()
        parallel.before_save()
        self._groups.expect_equal(self._gang)
        state, frozen = state_of(parallel, optimizer)
        to_write = self._to_be_written(frozen)
        content = {
            "version": manifest.VERSION,
            "format": "dcp",
            "step": step,
            **asdict(position),
            "loss": plain(loss),
            "optimizer_groups": self._groups.changed(),
            "lr_scheduler": self._lr_schedule.state(),
            "loss_scale": None if self._loss_scale is None else self._loss_scale.state(),
            **({} if self._draws is None else {"random_state": self._draws.state()}),
            "evaluation": evaluation,
            **({} if listener is None else {"listener": listener}),
            **self._about,
            **manifest.versions(),
        }
        # Equal on every rank, and fresh, because only this attempt writes there.
        attempt = int(self._about["attempt"])
        scratch = manifest.fresh(self._directory, step, attempt, self._num_saves)
        self._num_saves += 1
        if self._gang.rank == 0:
            manifest.begin(scratch)
        # Both branches let all ranks meet, so that nobody writes before the directory is there.
        if background and self._all_can_stage(state):
            group = self._gang.second_group()  # two threads must not share training's own group
            planner = StagingPlanner(self._room)

            def write(staged: Callable[[], None]) -> None:
                self._write(scratch, state, to_write, content, is_best, planner, staged, group)

            self._running = BackgroundSave(write, step=step, began=began, device=self._gang.device)
            self._running.wait_until_staged()
            return
        self._gang.sum([0.0])
        write_began, computed_s = time.monotonic(), time.thread_time()
        self._write(scratch, state, to_write, content, is_best)
        self._last_failed = False
        ended = time.monotonic()
        taken_s = ended - began
        if self._gang.device.type == "cpu":
            write_s, computed_s = ended - write_began, time.thread_time() - computed_s
            self._is_worth_it = write_s - computed_s > _LEAST_WAITING_SHARE * write_s
        self._ended.append(Save(step=step, save_s=taken_s, blocked_s=taken_s))

    @property
    def is_saving(self) -> bool:
        """Whether a save runs in the background."""
        return self._running is not None and not self._running.has_ended

    def wait(self) -> None:
        """Wait for the save in the background, if there is one."""
        if self._running is not None:
            ended = self._running.result()
            self._running = None
            self._last_failed = ended.failure is not None
            self._ended.append(ended)

    def take_ended(self) -> list[Save]:
        """The saves that have ended since the last call, oldest first."""
        if not self.is_saving:
            self.wait()
        ended, self._ended = self._ended, []
        return ended

    def _all_can_stage(self, state: Mapping[str, Mapping[str, Any]]) -> bool:
        """Whether all ranks can copy `state` to host memory, and whether that pays."""
        num_bytes = sum(local_bytes(value) for part in state.values() for value in part.values())
        held = sum(local_bytes(copy) for copy in self._room.values())
        has_room = (
            num_bytes - held <= _STAGED_SHARE * available_host_bytes() / self._gang.world_size
        )
        can = self._may_stage and self._is_worth_it and not self._last_failed and has_room
        cannot_total, bytes_total = self._gang.sum([not can, num_bytes])
        return cannot_total == 0 and bytes_total >= _LEAST_BACKGROUND_BYTES

    def _has_kept(
        self,
        reader: StorageReader,
        content: Mapping[str, Any],
        frozen: Mapping[str, Any],
        model_state: Mapping[str, Any],
    ) -> bool:
        """Whether a checkpoint keeps apart the weights that don't train now, and no others.

        A task may continue another with the same weights, of which others train. All ranks agree.
        """
        kept = kept_names(reader.read_metadata(), content)
        own = {name for name in model_state if _MODEL + name in kept}
        return bool(kept) and self._gang.sum([own != set(frozen)])[0] == 0

    def _to_be_written(self, frozen: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """The weights that don't train, if the last checkpoint lacks them; all ranks agree."""
        now = bit_sum(frozen.values())
        there, differing = self._gang.sum([len(frozen), now != self._frozen_sum])
        if there == 0:
            self._kept = None
        if there == 0 or differing == 0:
            return None
        self._frozen_sum = now
        return frozen

    def _write(
        self,
        scratch: Directory,
        state: Mapping[str, Any],
        frozen: Mapping[str, Any] | None,
        content: Mapping[str, Any],
        is_best: bool,
        planner: StagingPlanner | None = None,
        staged: Callable[[], None] | None = None,
        group: dist.ProcessGroup | None = None,
    ) -> None:
        """Write `state` as the newest checkpoint; every rank calls this, perhaps in a thread."""

        def commit(files: dict[str, Digest]) -> None:
            kept = self._kept
            whole = {**content, "files": files}
            if kept is not None:
                kept.put_into(scratch)
                whole |= {"files": {**files, **kept.files}, "frozen": sorted(kept.files)}
            target = manifest.commit(scratch, self._directory, whole)
            if kept is not None:
                self._kept = kept.at(target)
            if is_best:
                best.keep(target, content["step"])
            manifest.prune(self._directory)

        def keep(kept: Kept) -> None:
            self._kept = kept

        def join(metadata: Metadata) -> list[WriteResult]:
            return [] if self._kept is None else self._kept.join(metadata)

        try:
            if frozen is not None:
                written = KeptWriter(scratch, keep)
                write_state({"model": frozen}, written, self._gang, group=group)
            writer = CheckpointWriter(scratch, commit, staged, join)
            write_state(state, writer, self._gang, planner=planner, group=group)
        except BaseException:
            self._frozen_sum = None  # the files that hold these weights may be gone
            if self._gang.rank == 0:
                manifest.discard(scratch)  # on a full disk, the space is needed
            raise

    def newest(self) -> tuple[Directory, dict[str, Any]] | None:
        """The newest checkpoint that verifies, and its manifest; every rank calls this.

        Torn, damaged and foreign directories are skipped.
        """
        gang = self._gang
        # All ranks use rank 0's list, because others may see the directory in another state.
        listed = manifest.found(self._directory) if gang.rank == 0 else []
        for name in gang.collect([path.name for _, path in listed])[0]:
            path = self._directory / name
            content = manifest.read(path)
            wrong = content is None or manifest.verify(
                path, content, part=gang.rank, parts=gang.world_size
            )
            if gang.sum([1.0 if wrong else 0.0])[0] == 0.0 and content is not None:
                return path, content
        return None

    def load(
        self,
        directory: Directory,
        content: Mapping[str, Any],
        parallel: ParallelModel,
        optimizer: torch.optim.Optimizer,
    ) -> Position:
        """Load a verified checkpoint into model and fresh optimizer; every rank calls this."""
        module = parallel.module
        if content["format"] == "torch":
            # A black-box technique saved this, so it holds only the model.
            set_model_state_dict(
                module,
                saved_model(directory),
                options=StateDictOptions(full_state_dict=True),
            )
            self._lr_schedule.skip(content["step"])
        else:
            reader = reader_of(directory)
            entries = reader.read_metadata().state_dict_metadata
            if "continued" not in content:  # the model of another task must have the same shapes
                make_room(module, _entries_of(_MODEL, entries), self._gang.device)
            model_state = get_model_state_dict(module, options=OPTIONS)
            _expect_to_fit(directory, entries, model_state)
            saved = _entries_of(_OPTIMIZER, entries)
            with parallel.optimizer_memory():
                room = OptimizerRoom(module, optimizer, saved)
            load_distributed(
                {"model": model_state, "optimizer": room.state},
                storage_reader=reader,
                no_dist=self._gang.world_size == 1,
            )
            # Not strict: a model's `state_dict` may leave weights out that don't train.
            set_model_state_dict(module, model_state, options=StateDictOptions(strict=False))
            frozen = frozen_of(module, model_state)
            if self._has_kept(reader, content, frozen, model_state):
                self._kept = Kept.of(directory, content) if self._gang.rank == 0 else None
                self._frozen_sum = bit_sum(frozen.values())
            room.fill()
            # Making the optimizer's state may have changed its settings; this puts them back.
            self._groups.restore(content["optimizer_groups"])
            self._lr_schedule.restore(content["lr_scheduler"])
            if self._loss_scale is not None and (scale := content.get("loss_scale")) is not None:
                self._loss_scale.restore(scale)
            if self._draws is not None and (state := content.get("random_state")) is not None:
                self._draws.restore(state)
        return Position.of(content)


def _entries_of(prefix: str, entries: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of an index whose names begin with `prefix`, without it."""
    return {key.removeprefix(prefix): of for key, of in entries.items() if key.startswith(prefix)}


def _expect_to_fit(
    directory: Directory, entries: Mapping[str, Any], model_state: Mapping[str, Any]
) -> None:
    """Raise `TaskError` if the model has a tensor that the checkpoint lacks, or another shape."""
    for name, value in model_state.items():
        own, saved = getattr(value, "shape", None), entries.get(_MODEL + name)
        if own is None:
            continue
        shape = None if saved is None else getattr(saved, "size", None)
        if saved is not None and (shape is None or tuple(shape) == tuple(own)):
            continue
        there = "is not in it" if shape is None else f"is {shape_text(shape)} there"
        raise TaskError(
            f"the checkpoint {directory} does not fit the model that get_model makes: `{name}` "
            f"{there}, and {shape_text(own)} in the model; a task continues with the same model"
        )


def state_of(
    parallel: ParallelModel, optimizer: torch.optim.Optimizer
) -> tuple[dict[str, dict[str, Any]], dict[str, Any]]:
    """(changing state, weights that don't train): this rank's tensors themselves, not copies.

    Together they are the content of a checkpoint.
    """
    model = get_model_state_dict(parallel.module, options=OPTIONS)
    for name, parameter in parallel.module.named_parameters():
        if parameter.requires_grad and saved_name(name) not in model:
            raise TaskError(
                f"the model's state_dict() leaves out `{name}`, which trains: no checkpoint would "
                "have it"
            )
    frozen = frozen_of(parallel.module, model)
    changing = {name: value for name, value in model.items() if name not in frozen}
    return {"model": changing, "optimizer": tensors_of(parallel.module, optimizer)}, frozen


def frozen_of(module: nn.Module, state: Mapping[str, Any]) -> dict[str, Any]:
    """The entries of a model's state that are weights which don't train."""
    names = frozen_names(module)
    return {name: value for name, value in state.items() if name in names}


def expect_no_process_group() -> None:
    """Silence DCP's warning that there is no process group, in all threads.

    A gang of one rank has none.
    """
    warnings.filterwarnings("ignore", message="torch.distributed is disabled")


def write_state(
    state: Mapping[str, Any],
    writer: CheckpointWriter,
    gang: Gang,
    *,
    planner: StagingPlanner | None = None,
    group: dist.ProcessGroup | None = None,
) -> None:
    """Have all ranks write their shares; an error of one rank is raised on every rank."""
    try:
        save_distributed(
            dict(state),
            storage_writer=writer,
            planner=planner,
            process_group=group,
            no_dist=gang.world_size == 1,
        )
    except CheckpointException as error:
        # The error of one rank, instead of DCP's summary of all ranks.
        raise next(iter(error.failures.values()))[0] from None


def local_bytes(value: Any) -> int:
    """Bytes of this rank's part of a state dict's entry."""
    if isinstance(value, DTensor):
        value = value.to_local()
    return value.numel() * value.element_size() if isinstance(value, torch.Tensor) else 0
