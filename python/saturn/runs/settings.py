"""The settings of the request to the runtime, checked, and described as plain data.

What can be refused about settings is refused here, before anything is on disk; `request` does the
same for tasks.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from saturn import library
from saturn.checkpoint import place
from saturn.cluster import wish
from saturn.errors import InvalidInput
from saturn.library import Entry
from saturn.loggers import Logger, choosing
from saturn.plain.given_numbers import check_flag, check_seconds, check_whole
from saturn.plain.sizes import parse_limit, parse_size
from saturn.tasks.profile_key import technique_digest

#: The value of `profile` that ignores all earlier results.
NO_PROFILE = "none"

PathLike = str | os.PathLike[str]


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A run's settings besides its tasks; `search` and `orchestrate` explain them."""

    mode: str
    techniques: Iterable[str] | None = None
    devices: int | None = None
    wait: bool = False
    device_memory: int | str | None = None
    host_memory: int | str | None = None
    name: str | None = None
    runs_dir: PathLike = "saturn_runs"
    profile: PathLike | None = None
    warmup_steps: int = 1
    timed_steps: int = 3
    max_timed_steps: int | None = None
    trial_budget: float | str = "worthwhile"
    interval_s: float = 1000.0
    checkpoint_every_s: float | None = None
    stall_s: float = 600.0
    outlive_s: float = 0.0
    share: Path | None = None
    shares: Mapping[str, float] | None = None
    quotas: Mapping[str, int] | None = None
    solver_time_limit_s: float = 2.0
    max_switches: int | None = None
    seed: int = 0
    keep_open: bool = False
    raise_on_failure: bool = True
    loggers: Iterable[str | Logger] | None = None
    cluster: str | None = None
    nodes: int | None = None
    gpus_per_node: int | None = None
    nodes_per_task: int | None = None
    network_interface: str | None = None
    storage: str | None = None

    def checked(self) -> CheckedSettings:
        """The settings in the runtime's form; raises `TypeError` or `InvalidInput`."""
        check_whole("devices", self.devices, least=1)
        check_whole("nodes_per_task", self.nodes_per_task, least=1)
        for name in ("wait", "keep_open", "raise_on_failure"):
            check_flag(name, getattr(self, name))
        cluster = wish.checked(
            cluster=self.cluster,
            nodes=self.nodes,
            gpus_per_node=self.gpus_per_node,
            devices=self.devices,
            nodes_per_task=self.nodes_per_task,
            network_interface=self.network_interface,
            wait=self.wait,
        )
        check_whole("warmup_steps", self.warmup_steps, least=0)
        check_whole("timed_steps", self.timed_steps, least=2)
        check_whole("max_timed_steps", self.max_timed_steps, least=self.timed_steps)
        check_whole("max_switches", self.max_switches, least=0)
        check_whole("seed", self.seed, least=0)
        check_seconds("interval", self.interval_s)
        if self.checkpoint_every_s is not None:
            check_seconds("checkpoint_every_s", self.checkpoint_every_s)
        check_seconds("stall_s", self.stall_s)
        if self.outlive_s:
            check_seconds("outlive_s", self.outlive_s)
            if cluster is not None:
                raise InvalidInput(
                    "outlive_s: on a cluster, tasks end with the program; leave out `outlive_s`, "
                    "or `cluster`"
                )
        check_seconds("solver_time_limit_s", self.solver_time_limit_s)
        device_memory_bytes = parse_limit("device_memory", self.device_memory, unlimited=None)
        host_memory_bytes = parse_size("host_memory", self.host_memory)
        entries = library.select(self.techniques)
        loggers = choosing.checked(self.loggers)
        described = {
            "version": 1,
            "mode": self.mode,
            "python": sys.executable,
            "python_path": import_places(),
            "cwd": str(Path.cwd()),
            "devices": self.devices,
            "wait": self.wait,
            "interval_s": float(self.interval_s),
            "stall_s": float(self.stall_s),
            "solver_time_limit_s": float(self.solver_time_limit_s),
            "max_switches": 1 if self.max_switches is None else self.max_switches,
            "seed": self.seed,
            "warmup_steps": self.warmup_steps,
            "timed_steps": self.timed_steps,
            "trial_budget": _trial_budget(self.trial_budget),
            "keep_open": self.keep_open,
            "store": {
                # A profile that the user gives replaces the store.
                "reuse": self.profile is None,
                "techniques": {
                    entry.name: technique_digest(entry.technique)
                    for entry in entries
                    if entry.technique is not None
                },
            },
        }
        if self.outlive_s:
            described["outlives_s"] = float(self.outlive_s)
        if self.share is not None:
            described["door"] = str(self.share)
        if self.shares is not None:
            described["shares"] = dict(self.shares)
        if self.quotas is not None:
            described["quotas"] = dict(self.quotas)
        if self.checkpoint_every_s is not None:
            described["checkpoint_every_s"] = float(self.checkpoint_every_s)
        if self.nodes_per_task is not None:
            described["nodes_per_task"] = self.nodes_per_task
        if self.max_timed_steps is not None:
            described["max_timed_steps"] = self.max_timed_steps
        if device_memory_bytes is not None:
            described["device_memory_bytes"] = device_memory_bytes
        if host_memory_bytes is not None:
            described["host_memory_bytes"] = host_memory_bytes
        profile = None if self.profile == NO_PROFILE else self.profile
        storage = place.checked(self.storage)
        return CheckedSettings(entries, described, profile, loggers, cluster, storage)


@dataclass(frozen=True)
class CheckedSettings:
    """Settings that have been checked, so that a run can have them."""

    entries: list[Entry]
    described: dict[str, Any]
    #: The file or run with earlier results; None if the user gave none.
    profile: PathLike | None
    loggers: list[Logger]
    #: The cluster to run on; None: this machine.
    cluster: wish.ClusterWish | None
    #: The object store for checkpoints; None: the run directory.
    storage: str | None


def import_places() -> list[str]:
    """Where this program finds modules, for its workers; `InvalidInput` if no worker could."""
    places = [path or str(Path.cwd()) for path in sys.path]
    for path in places:
        if os.pathsep in path and Path(path).exists():
            raise InvalidInput(
                f"this program imports modules from {path!r}, and no worker could: in PYTHONPATH "
                f"`{os.pathsep}` separates two places; rename the directory"
            )
    return places


def _trial_budget(budget: float | str) -> str | dict[str, float]:
    """The budget for trials, in the engine's form."""
    if isinstance(budget, str):
        if budget not in ("worthwhile", "full"):
            raise InvalidInput(
                f'trial_budget is "{budget}"; it must be "worthwhile", "full" or a number of '
                "device-seconds"
            )
        return budget
    check_seconds("trial_budget", budget)
    return {"seconds": float(budget)}
