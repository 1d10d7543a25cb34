"""A rank's process: how many cores are its own."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from saturn.rank.process import bind_to_numa_node, cores_a_gpu


@pytest.mark.parametrize(
    ("cores", "gpus", "each"), [(16, 1, 16), (16, 4, 4), (17, 4, 4), (2, 8, 1), (1, 1, 1)]
)
def test_cores_fall_to_gpus_evenly(
    monkeypatch: pytest.MonkeyPatch, cores: int, gpus: int, each: int
) -> None:
    monkeypatch.setattr("saturn.rank.process.MACHINES_GPUS", "/nowhere")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(cores)))
    assert cores_a_gpu(gpus) == each


def test_the_machine_may_have_more_gpus_than_a_gang(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    directory = tmp_path / "gpus"
    for number in range(4):
        (directory / f"0000:0{number}:00.0").mkdir(parents=True)
    monkeypatch.setattr("saturn.rank.process.MACHINES_GPUS", str(directory))
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))
    assert cores_a_gpu(1) == 4 and cores_a_gpu(8) == 2


@pytest.mark.parametrize(
    ("node", "allowed", "bound"),
    [
        ("1", range(16), {4, 5, 6, 7, 12}),
        ("1", range(6), {4, 5}),
        ("1", range(4), None),  # none of the near cores is this process's
        ("-1", range(16), None),  # what Linux says where there is one node
        (None, range(16), None),
    ],
)
def test_a_rank_runs_on_the_cores_near_its_gpu(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    node: str | None,
    allowed: range,
    bound: set[int] | None,
) -> None:
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "cpulist").write_text("4-7,12\n")
    (tmp_path / "0001:9a:00.0").mkdir()
    if node is not None:
        (tmp_path / "0001:9a:00.0" / "numa_node").write_text(f"{node}\n")
    monkeypatch.setattr("saturn.rank.process.PCI_DEVICES", str(tmp_path))
    monkeypatch.setattr("saturn.rank.process.NUMA_NODES", str(tmp_path))
    about = SimpleNamespace(pci_domain_id=1, pci_bus_id=0x9A, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: about)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(allowed))
    chosen: list[set[int]] = []
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: chosen.append(set(cores)))
    bind_to_numa_node(torch.device("cuda", 0))
    assert chosen == ([] if bound is None else [bound])
