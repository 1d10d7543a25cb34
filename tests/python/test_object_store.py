"""Checkpoints in an object store: a real S3 server, moto's, in a process of its own."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import saturn
import torch
from saturn.checkpoint import best, manifest, place
from saturn.checkpoint.black_box_state import commit_pending, read_whole, write_pending
from saturn.checkpoint.folder import Folder
from saturn.cluster.storage import Proof, answer
from saturn.data.slices import Position
from saturn.errors import InvalidInput
from saving import Saving

pytest.importorskip("s3fs")
pytest.importorskip("moto")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

BUCKET = "models"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Its address; this process and all that it starts talk to it."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    log = (tmp_path_factory.mktemp("s3") / "log").open("w")
    process = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-p", str(port)], stdout=log, stderr=log
    )
    address = f"http://127.0.0.1:{port}"
    there = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ACCESS_KEY_ID": "somebody",
        "AWS_SECRET_ACCESS_KEY": "a secret",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    before = {name: os.environ.get(name) for name in there}
    os.environ |= there
    try:
        while True:
            assert process.poll() is None, Path(log.name).read_text()
            try:
                request = urllib.request.Request(f"{address}/{BUCKET}", method="PUT")
                urllib.request.urlopen(request).close()
                break
            except OSError:
                time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait()
        log.close()
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


@pytest.fixture
def folder(server: str, tmp_path: Path) -> Folder:
    """Where a task's checkpoints would be."""
    return Folder(f"s3://{BUCKET}/{tmp_path.name}/tasks/t/checkpoints", tmp_path)


def saved(folder: Folder, step: int, *, attempt: int = 1, number: int = 0) -> Folder:
    """A black box's checkpoint, as an attempt writes it."""
    directory = manifest.fresh(folder, step, attempt, number)
    assert isinstance(directory, Folder)
    manifest.begin(directory)
    (directory / "part").write_bytes(b"content")
    return directory


def committed(directory: Folder, step: int, **more: Any) -> Folder:
    digest = {"bytes": 7, "sha256": "of what nobody reads here"}
    content = {"version": manifest.VERSION, "step": step, "files": {"part": digest}, **more}
    done = manifest.commit(directory, directory.parent, content)
    assert isinstance(done, Folder)
    return done


def test_what_has_no_manifest_is_not_there(folder: Folder) -> None:
    assert manifest.newest_valid(folder) is None
    committed(saved(folder, 1), 1)
    crashed = saved(folder, 2)
    newest = manifest.newest_valid(folder)
    assert newest is not None and newest[1]["step"] == 1
    # Its parts go when the next is saved; the last two stay.
    committed(saved(folder, 3), 3)
    committed(saved(folder, 4, attempt=2), 4)
    manifest.prune(folder)
    assert [step for step, _ in manifest.found(folder)] == [4, 3]
    assert not crashed.objects()


def test_what_is_not_as_it_was_written_is_passed_over(folder: Folder) -> None:
    committed(saved(folder, 1), 1)
    newer = committed(saved(folder, 2), 2)
    (newer / "part").write_bytes(b"another")  # as long
    content = manifest.read(newer)
    assert content is not None
    assert "other content than was written" in str(manifest.verify(newer, content))
    newest = manifest.newest_valid(folder)
    assert newest is not None and newest[1]["step"] == 1
    newer.remove("part")
    assert "the manifest names ['part']" in str(manifest.verify(newer, content))
    # A part that never came keeps the manifest from being written.
    lost = saved(folder, 3)
    lost.remove("part")
    with pytest.raises(OSError, match="is not in the store as it was written"):
        committed(lost, 3)
    assert not (lost / manifest.NAME).exists()


def test_an_attempt_that_was_given_up_publishes_nothing(folder: Folder) -> None:
    mark = folder.task_dir / "attempts" / "7" / "given-up"
    mark.parent.mkdir(parents=True)
    mark.write_text("silent")
    late = saved(folder, 5, attempt=7)
    with pytest.raises(manifest.GivenUp):
        committed(late, 5, attempt=7)
    # It writes where no other attempt does, whatever the step.
    other = committed(saved(folder, 5, attempt=8), 5, attempt=8)
    assert other.name != late.name and manifest.of_step(folder, 5) == other


def test_the_best_is_a_copy_that_outlives_it(folder: Folder) -> None:
    first = committed(saved(folder, 1), 1)
    best.keep(first, 1)
    manifest.keep_only([], folder)
    kept = manifest.newest_valid(best.directory_of(folder))
    assert kept is not None and kept[1]["step"] == 1
    best.keep(committed(saved(folder, 2), 2), 2)
    assert [step for step, _ in manifest.found(best.directory_of(folder))] == [2]


def test_a_black_box_saves_the_same_step_twice(folder: Folder) -> None:
    about = {"step": 3, "batches": 3, "epoch": 0, "attempt": 1}
    for value in (1.0, 2.0):
        write_pending({"model": {"w": torch.tensor(value)}}, folder)
        commit_pending(folder, about)
    newest = manifest.newest_valid(folder)
    assert newest is not None and read_whole(newest[0])["model"]["w"] == 2.0
    assert len(manifest.found(folder)) == 1


def test_training_goes_on_from_the_store_as_if_it_had_never_stopped(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("saturn.checkpoint.checkpoints._LEAST_BACKGROUND_BYTES", 0)
    first = Saving(folder, 1, folder.task_dir)
    first.checkpoints._is_worth_it = True
    position = first.train(Position(), 3)
    first.save(3, position)
    position = first.train(position, 2)
    first.save(5, position, background=True)
    position = first.train(position, 2)

    # A crash between the parts and the manifest leaves nothing that is read.
    def crash(*_: object) -> None:
        raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(manifest, "_commit_stored", crash)
        patch.setattr(manifest, "discard", lambda scratch: None)  # what is killed removes nothing
        with pytest.raises(RuntimeError, match="killed"):
            first.save(7, position)
    assert [name for name in folder.folders() if name.startswith("step-00000007")]

    second = Saving(folder, 2, folder.task_dir)
    step, position = second.load()
    assert step == 5
    position = second.train(position, 2)
    for name, value in first.weights().items():
        assert torch.equal(value, second.weights()[name]), name
    second.save(7, position)
    assert sorted(folder.folders()) == ["step-00000005.1001", "step-00000007.2000"]
    whole = manifest.newest_valid(folder)
    assert whole is not None and whole[1]["frozen"]


def get_model() -> torch.nn.Module:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 2))
    model[0].weight.requires_grad = False  # written once, and copied by the store
    return model


def get_dataloader() -> Any:
    seeded = torch.Generator().manual_seed(0)
    data = torch.utils.data.TensorDataset(
        torch.randn(64, 8, generator=seeded), torch.randint(2, (64,), generator=seeded)
    )
    return torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)


def held_back(released: Path, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    """Cross entropy, slow until there is a file."""
    if not released.exists():
        time.sleep(0.05)
    return torch.nn.functional.cross_entropy(output, target)


def task(steps: int, released: Path) -> saturn.Task:
    """A task whose training is slow until there is a file."""
    loss = partial(held_back, released)
    hparams = saturn.HParams(lr=1e-2, batch_count=steps)
    techniques = ["ddp"]
    return saturn.Task(get_model, get_dataloader, loss, hparams, name="t", techniques=techniques)


def losses(run_dir: Path) -> dict[int, float]:
    lines = (run_dir / "tasks/t/metrics.jsonl").read_text().splitlines()
    return {one["step"]: one["loss"] for one in map(json.loads, lines)}


def test_a_run_stops_and_goes_on_from_the_store(server: str, tmp_path: Path) -> None:
    steps, released = 300, tmp_path / "released"
    run = saturn.start(
        [task(steps, released)],
        storage=f"s3://{BUCKET}/runs/",
        runs_dir=tmp_path,
        name="stored",
        checkpoint_every_s=0.5,
        devices=1,
        log=False,
    )
    checkpoints_dir = place.checkpoints_of(run.run_dir / "tasks/t")
    while not manifest.found(checkpoints_dir):
        assert not run.is_over
        time.sleep(0.1)
    run.stop()
    with pytest.raises(saturn.RunInterrupted):
        run.wait()
    newest = manifest.newest_valid(checkpoints_dir)
    assert newest is not None and 0 < newest[1]["step"] < steps
    assert newest[1]["frozen"]
    assert not (run.run_dir / "tasks/t/checkpoints").exists()
    released.touch()
    result = saturn.resume(run.run_dir, log=False).wait()
    newest = manifest.newest_valid(checkpoints_dir)
    assert newest is not None and newest[1]["step"] == steps
    plain = saturn.orchestrate([task(steps, released)], runs_dir=tmp_path, devices=1, log=False)
    assert losses(result.run_dir) == losses(plain.run_dir)


def test_every_node_of_a_cluster_proves_that_it_reaches_the_store(
    server: str, tmp_path: Path
) -> None:
    run_dir = tmp_path / "run"
    (run_dir / "nodes").mkdir(parents=True)
    place.keep_in(run_dir, f"s3://{BUCKET}/proofs")
    store = place.store_of(run_dir)
    assert store is not None
    with Proof(run_dir) as proof:
        said = answer(str(proof.directory), proof.word, "a")
        assert proof.wrong_with("a", said) is None
        (store / proof.directory.name / "question").write_bytes(b"another")
        said = answer(str(proof.directory), proof.word, "b")
        assert proof.wrong_with("b", said) == (
            f"node `b` can't keep checkpoints in {store} (this address is another store on that "
            "node); give it the same packages and keys as this machine (docs/storage.md)"
        )
    assert store.folders() == [] and store.objects() == {}


def test_what_can_not_be_a_store_is_refused_in_a_line(server: str, tmp_path: Path) -> None:
    for storage, said in {
        "bucket/folder": 'such as "s3://bucket/folder"',
        "s3://": 'such as "s3://bucket/folder"',
        "nosuch://bucket": "need a package that is not here",
        "s3://nobody-made-this": "can't be written to and read",
    }.items():
        with pytest.raises(InvalidInput) as error:
            saturn.start(
                [task(1, tmp_path)], storage=storage, runs_dir=tmp_path / "runs", log=False
            )
        assert said in str(error.value) and "\n" not in str(error.value)
        assert not list((tmp_path / "runs").glob("*"))
    with pytest.raises(TypeError, match="storage is a bool"):
        saturn.start([task(1, tmp_path)], storage=True, runs_dir=tmp_path, log=False)  # type: ignore[arg-type]
