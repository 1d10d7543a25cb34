"""Directories and folders of checkpoints: which is the newest, and what an attempt leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from saturn.checkpoint import manifest
from saturn.checkpoint.folder import Folder, system
from saturn.checkpoint.kept import bit_sum
from saturn.checkpoint.place import checked, checkpoints_of, scratch_of
from saturn.errors import InvalidInput


def committed(directory: Path) -> Path:
    """A checkpoint, as far as its directory tells."""
    directory.mkdir(parents=True)
    (directory / manifest.NAME).write_text('{"step": 4}')
    return directory


@pytest.mark.parametrize("made", ["oldest first", "newest first"])
def test_the_last_save_of_the_last_step_is_the_newest(tmp_path: Path, made: str) -> None:
    newest_first = [
        *(f"step-00000012.{number}" for number in range(12, 1, -1)),
        *("step-00000012", "step-00000007.3", "step-00000007", "step-00000003"),
    ]
    # Some file systems list the newest entry first, others the oldest.
    for name in newest_first if made == "newest first" else reversed(newest_first):
        committed(tmp_path / name)
    (tmp_path / "step-00000013").mkdir()  # without a manifest it is none
    assert [directory.name for _, directory in manifest.found(tmp_path)] == newest_first
    assert manifest.of_step(tmp_path, 12).name == "step-00000012.12"
    manifest.prune(tmp_path)
    kept = ["step-00000007.3", "step-00000012.12"]
    assert sorted(entry.name for entry in tmp_path.iterdir()) == kept


def test_a_link_that_was_cut_short_is_made_anew(tmp_path: Path) -> None:
    checkpoint = committed(tmp_path / "step-00000004")
    (checkpoint / "weights").write_text("good")
    unfinished = tmp_path / "best" / f"{manifest.UNFINISHED}{checkpoint.name}"
    unfinished.mkdir(parents=True)
    (unfinished / "weights").write_text("half")
    linked = manifest.link(checkpoint, tmp_path / "best", 4, {"loss": 1.0})
    assert (linked / "weights").read_text() == "good"
    assert '"loss": 1.0' in (linked / manifest.NAME).read_text()
    assert [entry.name for entry in (tmp_path / "best").iterdir()] == [linked.name]


def test_whatever_can_not_be_removed_keeps_nothing_else_from_it(tmp_path: Path) -> None:
    # Whichever the file system lists first: a file of such a name is no directory to remove.
    for number in range(6):
        (tmp_path / f"{manifest.UNFINISHED}{number}").mkdir()
        (tmp_path / f"{manifest.UNFINISHED}file-{number}").touch()
    kept = committed(tmp_path / "step-00000004")
    manifest.keep_only([kept], tmp_path)
    assert [entry for entry in tmp_path.iterdir() if entry.is_dir()] == [kept]


# In an object store, which is in memory here.


def test_a_run_s_checkpoints_and_trials_are_where_its_storage_is(tmp_path: Path) -> None:
    task_dir = tmp_path / "tasks" / "t"
    attempt_dir = task_dir / "attempts" / "3"
    assert checkpoints_of(task_dir) == task_dir / "checkpoints"
    assert scratch_of(task_dir, attempt_dir) == attempt_dir
    (tmp_path / "storage.json").write_text('{"url": "s3://bucket/run"}')
    assert str(checkpoints_of(task_dir)) == "s3://bucket/run/tasks/t/checkpoints"
    assert str(scratch_of(task_dir, attempt_dir)) == "s3://bucket/run/tasks/t/scratch/3"


@pytest.mark.parametrize(
    ("storage", "address"),
    [
        (None, None),
        ("s3://bucket/folder/", "s3://bucket/folder"),
        ("gs://bucket", "gs://bucket"),
        *((wrong, InvalidInput) for wrong in ("bucket/folder", "s3://", "s3:///", "s 3://bucket")),
        *((wrong, InvalidInput) for wrong in ("://bucket", "s3:/bucket")),
        (True, TypeError),
    ],
)
def test_storage_is_the_address_of_a_store(storage: object, address: Any) -> None:
    if not isinstance(address, type):
        assert checked(storage) == address
        return
    with pytest.raises(address, match=r"storage is .*s3://"):
        checked(storage)


def test_a_store_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("fsspec")
    with pytest.raises(InvalidInput, match=r"not here: see fsspec .*nosuch"):
        system("nosuch://bucket/folder")

    def missing(protocol: str) -> Any:
        raise ImportError(f"no package for {protocol}")

    monkeypatch.setattr("saturn.checkpoint.folder._system", missing)
    with pytest.raises(InvalidInput, match=r"not here: pip install s3fs$"):
        system("s3://bucket/folder")


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(f"memory://{tmp_path}/checkpoints", tmp_path)


def saved(folder: Folder, step: int, attempt: int = 1) -> Folder:
    """The files of a checkpoint, which has no manifest yet."""
    scratch = manifest.fresh(folder, step, attempt, 0)
    assert isinstance(scratch, Folder)
    for name in ("a-part", "weights"):
        (scratch / name).write_bytes(b"content")
    return scratch


def commit(scratch: Folder, step: int, attempt: int = 1) -> None:
    digest = {"bytes": 7, "sha256": "of what nobody reads here"}
    files = {"a-part": digest, "weights": digest}
    content = {"step": step, "attempt": attempt, "files": files}
    manifest.commit(scratch, scratch.parent, content)


def test_a_store_has_the_checkpoints_that_have_manifests(folder: Folder) -> None:
    for step in (1, 2):
        commit(saved(folder, step), step)
    crashed = saved(folder, 3)
    lost = saved(folder, 4)
    lost.remove("weights")
    with pytest.raises(OSError, match="is not in the store as it was written"):
        commit(lost, 4)
    assert [step for step, _ in manifest.found(folder)] == [2, 1]
    manifest.keep_only([manifest.of_step(folder, 2)], folder)
    assert [step for step, _ in manifest.found(folder)] == [2] and not crashed.objects()


def test_an_attempt_that_was_given_up_stores_no_checkpoint(folder: Folder) -> None:
    mark = folder.task_dir / "attempts" / "7" / "given-up"
    mark.parent.mkdir(parents=True)
    mark.touch()
    with pytest.raises(manifest.GivenUp):
        commit(saved(folder, 5, attempt=7), 5, attempt=7)
    assert not manifest.found(folder)
    commit(saved(folder, 5, attempt=8), 5, attempt=8)
    assert [step for step, _ in manifest.found(folder)] == [5]


def test_a_stored_checkpoint_loses_its_manifest_first(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit(scratch := saved(folder, 1), 1)
    removed = []
    remove = Folder.remove
    monkeypatch.setattr(Folder, "remove", lambda of, name: (removed.append(name), remove(of, name)))
    manifest.discard(scratch)
    assert removed[0] == manifest.NAME and not scratch.objects()


# Whether weights that don't train are still as they were saved.


def test_every_bit_of_every_tensor_counts_in_a_sum() -> None:
    tensors = [torch.arange(19, dtype=torch.uint8) + 1, torch.arange(4.0), torch.arange(2.0)]
    before = bit_sum(tensors)
    assert before == bit_sum([tensor.clone() for tensor in tensors])
    for place in range(19):
        for bit in range(8):
            changed = tensors[0].clone()
            changed[place] ^= 1 << bit
            assert bit_sum([changed, *tensors[1:]]) != before, (place, bit)
    assert bit_sum([tensors[0], tensors[1].flip(0), tensors[2]]) != before
    assert bit_sum([tensors[0], tensors[2], tensors[1]]) != before
    # Weights may be cut out of a longer tensor, at any place.
    longer = [torch.cat([tensor[:1], tensor])[1:] for tensor in tensors]
    assert before == bit_sum(longer)


def test_bytes_beyond_the_last_word_are_summed_once() -> None:
    assert bit_sum([torch.tensor([0] * 7 + [5, 9], dtype=torch.uint8)]) == (5 << 56) + 9
