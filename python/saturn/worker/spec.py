"""The attempt's `spec.json`, in which the runtime tells the ranks what to do.

The module has only the format and its checks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saturn.checkpoint import manifest
from saturn.checkpoint.place import Directory, checkpoints_of, scratch_of

VERSION = 1


@dataclass(frozen=True, kw_only=True)
class TechniqueRef:
    """Where a technique's class is found: an import path, or a pickle in the run directory."""

    name: str
    level: str  # "managed" or "black_box"
    import_path: str | None  # "module:Qualified.Name"
    pickle_path: Path | None


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One attempt or trial; every rank of the gang reads the same file."""

    kind: str  # "train" or "trial"
    run_dir: Path
    task: str
    task_dir: Path
    attempt: int
    technique: TechniqueRef
    gpus: int
    knobs: dict[str, Any] | None  # None in a trial whose knobs the technique chooses
    world_size: int
    device_kind: str  # "cpu" or "cuda"
    devices: tuple[int, ...]  # the devices on this node
    device_memory_bytes: int | None  # limit for each device; None for only the device's own
    cores: tuple[tuple[int, ...], ...] | None  # to pin, one tuple per device here; None on GPUs
    steps: int | None  # the task's total number of steps; None in a trial
    stop_at_step: int | None = None  # stop at a checkpoint after this step, for a planned switch
    warmup_steps: int
    timed_steps: int  # the least number of timed steps
    max_timed_steps: int
    checkpoint_every_s: float | None  # if None, `worker.intervals` chooses
    failure_every_s: float
    rendezvous: Path
    socket: str
    first_rank: int = 0  # the lowest rank on this node
    node_gpus: tuple[int, ...] = ()  # devices of each node of the gang, in rank order
    store: str | None = None  # host:port of the store where ranks of several nodes meet

    @property
    def checkpoints_dir(self) -> Directory:
        return checkpoints_of(self.task_dir)

    @property
    def scratch_dir(self) -> Directory:
        """A place for trial writes in the format of a checkpoint, to be removed afterwards."""
        return scratch_of(self.task_dir, self.attempt_dir)

    @property
    def has_checkpoints(self) -> bool:
        """Whether the task has a checkpoint, so has trained before."""
        return any(manifest.found(self.checkpoints_dir))

    @property
    def strategy_text(self) -> str:
        """Technique, devices and knobs, for people."""
        knobs = ", ".join(f"{name}={value}" for name, value in (self.knobs or {}).items())
        named = ", ".join(map(str, self.devices))
        where = f"device{'s' if self.gpus > 1 else ''} {named}"
        return f"{self.technique.name} on {where}" + (f" ({knobs})" if knobs else "")

    @property
    def attempt_dir(self) -> Path:
        """The attempt's directory, with scratch space and its logs."""
        return self.task_dir / "attempts" / str(self.attempt)


@dataclass(frozen=True, kw_only=True)
class AskedPool:
    """Devices of one type about which techniques are asked."""

    gpu_type: str
    gpus: tuple[int, ...]  # numbers of devices
    node_gpus: tuple[int, ...]  # devices of each node of the type, most first; empty: one node
    device_memory_bytes: int | None  # what each device may hold; None if that is not known


@dataclass(frozen=True, kw_only=True)
class InspectionSpec:
    """One inspection of a task's model, without a device."""

    run_dir: Path
    task: str
    task_dir: Path
    attempt: int
    techniques: tuple[TechniqueRef, ...]
    device_kind: str  # "cpu" or "cuda"
    pools: tuple[AskedPool, ...]
    socket: str


def load(path: str | Path) -> Spec | InspectionSpec:
    """Read and check a spec file; raises `ValueError` with the file and the wrong field."""
    path = Path(path)
    data = json.loads(path.read_text())
    if not isinstance(data, dict) or data.get("version") != VERSION:
        raise ValueError(f"{path}: version must be {VERSION}")
    try:
        if data["kind"] == "inspect":
            return _inspection(data)
        spec = _from_json(data)
    except KeyError as error:
        raise ValueError(f"{path}: field {error} is missing") from None
    if spec.kind not in ("train", "trial"):
        raise ValueError(f"{path}: kind `{spec.kind}` is not one of inspect, train, trial")
    if spec.kind == "train" and (spec.steps is None or spec.steps < 1):
        raise ValueError(f"{path}: steps must be a positive number to train")
    if spec.stop_at_step is not None and spec.technique.level != "managed":
        raise ValueError(f"{path}: stop_at_step is for managed techniques alone")
    if spec.technique.level not in ("managed", "black_box"):
        raise ValueError(f"{path}: level `{spec.technique.level}` is not one of managed, black_box")
    return spec


def _inspection(data: Mapping[str, Any]) -> InspectionSpec:
    return InspectionSpec(
        run_dir=Path(data["run_dir"]),
        task=data["task"],
        task_dir=Path(data["task_dir"]),
        attempt=int(data["attempt"]),
        techniques=tuple(_technique(data, one) for one in data["techniques"]),
        device_kind=data["device_kind"],
        pools=tuple(
            AskedPool(
                gpu_type=pool["gpu_type"],
                gpus=tuple(pool["gpus"]),
                node_gpus=tuple(pool.get("node_gpus", ())),
                device_memory_bytes=pool["device_memory_bytes"],
            )
            for pool in data["pools"]
        ),
        socket=data["socket"],
    )


def _technique(data: Mapping[str, Any], technique: Mapping[str, Any]) -> TechniqueRef:
    pickle = technique.get("pickle")
    return TechniqueRef(
        name=technique["name"],
        level=technique["level"],
        import_path=technique.get("import"),
        # The path is relative to the run directory.
        pickle_path=Path(data["run_dir"], pickle) if pickle else None,
    )


def _from_json(data: Mapping[str, Any]) -> Spec:
    cores = data.get("cores")
    return Spec(
        kind=data["kind"],
        run_dir=Path(data["run_dir"]),
        task=data["task"],
        task_dir=Path(data["task_dir"]),
        attempt=int(data["attempt"]),
        technique=_technique(data, data["technique"]),
        gpus=int(data["gpus"]),
        knobs=data.get("knobs"),
        world_size=int(data["world_size"]),
        device_kind=data["device_kind"],
        devices=tuple(data["devices"]),
        device_memory_bytes=data.get("device_memory_bytes"),
        cores=None if cores is None else tuple(tuple(slot) for slot in cores),
        steps=data.get("steps"),
        stop_at_step=data.get("stop_at_step"),
        warmup_steps=int(data["warmup_steps"]),
        timed_steps=int(data["timed_steps"]),
        max_timed_steps=int(data["max_timed_steps"]),
        checkpoint_every_s=data["checkpoint_every_s"],
        failure_every_s=float(data["failure_every_s"]),
        rendezvous=Path(data["rendezvous"]),
        socket=data["socket"],
        first_rank=int(data.get("first_rank", 0)),
        node_gpus=tuple(data.get("node_gpus", ())),
        store=data.get("store"),
    )
