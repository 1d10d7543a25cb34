"""What saves of a gang of one leave on a disk and in an object store, which is in memory here."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from models import Mlp
from saturn.checkpoint import best, checkpoints, manifest
from saturn.checkpoint.black_box_state import commit_pending, read_whole, write_pending
from saturn.checkpoint.checkpoints import state_of
from saturn.checkpoint.folder import Folder
from saturn.checkpoint.place import Directory
from saturn.data.slices import Position
from saving import Saving, frozen_first
from torch.distributed.checkpoint.filesystem import FileSystemWriter


@pytest.fixture(params=["disk", "store"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Directory:
    """Where a task's checkpoints are kept."""
    if request.param == "disk":
        return tmp_path / "checkpoints"
    pytest.importorskip("fsspec")
    return Folder(f"memory://{tmp_path}/checkpoints", tmp_path)


def steps_in(place: Directory) -> list[int]:
    return [step for step, _ in manifest.found(place)]


def test_the_best_checkpoint_stays_whole_when_newer_ones_that_are_worse_are_saved(
    place: Directory, tmp_path: Path
) -> None:
    saving = Saving(place, 1, tmp_path)
    for step in range(1, 5):
        saving.save(step, Position(), is_best=step == 1)
    assert steps_in(place) == [4, 3]
    newest = manifest.newest_valid(best.directory_of(place))
    assert newest is not None and newest[1]["step"] == 1
    saving.save(5, Position(), is_best=True)
    assert steps_in(best.directory_of(place)) == [5]


def test_the_best_goes_back_with_a_training_that_goes_back(
    place: Directory, tmp_path: Path
) -> None:
    saving = Saving(place, 1, tmp_path)
    for step in (1, 2):
        saving.save(step, Position(), is_best=True)
    # The newest checkpoint was lost, and the one before it says that it is the best.
    best.repair(manifest.of_step(place, 1), 1)
    assert steps_in(best.directory_of(place)) == [1]
    manifest.keep_only([], best.directory_of(place))  # killed before it was kept
    best.repair(manifest.of_step(place, 1), 1)
    assert steps_in(best.directory_of(place)) == [1]


def test_each_checkpoint_has_the_weights_that_do_not_train_also_after_a_resume(
    place: Directory, tmp_path: Path
) -> None:
    first = Saving(place, 1, tmp_path)
    position = first.train(Position(), 1)
    with torch.no_grad():
        for parameter in first.stepper.parallel.module.parameters():
            parameter.add_(1.0)  # no freshly built model has these weights
    first.save(1, position)
    resumed = Saving(place, 2, tmp_path)
    assert resumed.load() == (1, position)
    resumed.save(2, position)
    manifest.keep_only([manifest.of_step(place, 2)], place)
    last = Saving(place, 3, tmp_path)
    assert last.load() == (2, position)
    for name, value in first.weights().items():
        assert torch.equal(last.weights()[name], value), name


def no_biases() -> Mlp:
    """Other weights are frozen than in `frozen_first`, whose first weight trains here."""
    model = Mlp()
    for name, parameter in model.named_parameters():
        parameter.requires_grad = not name.endswith("bias")
    return model


@pytest.mark.parametrize("model", [Mlp, no_biases])
def test_a_task_that_continues_with_other_weights_frozen_saves_what_it_trains(
    place: Directory, tmp_path: Path, model: Any
) -> None:
    first = Saving(place, 1, tmp_path)
    first.save(2, position := first.train(Position(), 2))
    # And back: a weight that trained is frozen again, and its optimizer state is left out.
    for attempt, get_model in enumerate((model, frozen_first), start=2):
        saving = Saving(place, attempt, tmp_path, get_model)
        assert saving.load() == (2 * attempt - 2, position)
        before = saving.weights()
        position = saving.train(position, 2)
        moved = {name for name, value in saving.weights().items() if (value != before[name]).any()}
        assert ("layers.0.weight" in moved) == (get_model is model)
        saving.save(2 * attempt, position)
        loaded = Saving(place, 10 * attempt, tmp_path, get_model)
        assert loaded.load() == (2 * attempt, position)
        for name, value in saving.weights().items():
            assert torch.equal(loaded.weights()[name], value), name


def test_what_a_failed_save_has_left_spoils_no_later_save_of_the_step(
    place: Directory, tmp_path: Path
) -> None:
    left = manifest.fresh(place, 1, 1, 0)
    if isinstance(left, Path):
        left.mkdir(parents=True)
    (left / "half-written").write_bytes(b"some")
    Saving(place, 1, tmp_path).save(1, Position())
    newest = manifest.newest_valid(place)
    assert newest is not None and newest[1]["step"] == 1


def test_a_black_box_saves_to_a_store_what_it_wrote_to_the_disk(tmp_path: Path) -> None:
    pytest.importorskip("fsspec")
    store = Folder(f"memory://{tmp_path}/checkpoints", tmp_path)
    for value in (1.0, 2.0):
        write_pending({"model": {"w": torch.tensor(value)}}, store)
        commit_pending(store, {"step": 3, "batches": 3, "epoch": 0, "attempt": 1})
    newest = manifest.newest_valid(store)
    assert newest is not None and newest[1]["step"] == 3
    assert read_whole(newest[0])["model"]["w"] == 2.0


# Saves in the background.


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """No file is written in the background before this event.

    After the first save, which training always waits for, any save may go to the background.
    """
    opened = threading.Event()
    opened.set()
    write = FileSystemWriter.write_data

    def gated(*arguments: Any) -> Any:
        if threading.current_thread() is not threading.main_thread():
            opened.wait()
        return write(*arguments)

    monkeypatch.setattr(FileSystemWriter, "write_data", gated)
    monkeypatch.setattr(checkpoints, "_LEAST_BACKGROUND_BYTES", 0)
    monkeypatch.setattr(checkpoints, "_LEAST_WAITING_SHARE", -1.0)
    yield opened
    opened.set()


def saved_once(place: Directory, task_dir: Path, gate: threading.Event) -> tuple[Saving, Position]:
    """An attempt after a step and a save; saves in the background now wait at the gate."""
    saving = Saving(place, 1, task_dir)
    position = saving.train(Position(), 1)
    saving.save(1, position)
    gate.clear()
    return saving, position


def test_a_save_in_the_background_has_the_state_from_before_training_went_on(
    place: Directory, tmp_path: Path, gate: threading.Event
) -> None:
    saving, position = saved_once(place, tmp_path, gate)
    for step in (2, 3):  # the second of them copies into the memory of the first
        gate.clear()
        position = saving.train(position, 1)
        expected = saving.weights()
        saving.begin_save(step, position, background=True)
        assert saving.checkpoints.is_saving
        saving.train(position, 1)
        gate.set()
        saving.end_save()
        loaded = Saving(place, step, tmp_path)
        assert loaded.load() == (step, position)
        for name, value in expected.items():
            assert torch.equal(loaded.weights()[name], value), name


@pytest.mark.parametrize(("missing", "is_staged"), [(0, True), (8, False)])
def test_no_more_than_half_of_the_free_memory_is_taken_for_copies(
    tmp_path: Path,
    gate: threading.Event,
    monkeypatch: pytest.MonkeyPatch,
    missing: int,
    is_staged: bool,
) -> None:
    saving, position = saved_once(tmp_path / "checkpoints", tmp_path, gate)
    changing, _ = state_of(*saving.state)
    needed = sum(tensor.nbytes for part in changing.values() for tensor in part.values())
    monkeypatch.setattr(checkpoints, "available_host_bytes", lambda: 2 * needed - missing)
    saving.begin_save(2, position, background=True)
    assert saving.checkpoints.is_saving == is_staged
    gate.set()
    saving.end_save()
