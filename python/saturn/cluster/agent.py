"""The process on a node: an actor of Ray that hosts the runtime's agent.

Ray gives the actor the devices that it holds; the agent starts ranks on them. The agent and all its
ranks end with the program that made it, with the run, or if the agent hears nothing of its driver.

Errors are returned, not raised: an exception would carry Ray's long account of it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from saturn import native
from saturn.cluster import network, storage, versions
from saturn.cluster.connection import asks_for_token
from saturn.cluster.store import AgentStore
from saturn.errors import SaturnError


@dataclass(frozen=True, kw_only=True)
class AgentSpec:
    """What an agent is told when it is made."""

    node: str  # the node's name in the run
    devices: int
    fewer_will_do: bool  # where other Saturn runs hold some of them
    python_path: Sequence[str]  # where the driver's program is imported from, without packages
    cwd: str
    run: str  # where the run will be, to be shown to other runs on the machine
    driver: str  # an address of the driver's machine
    network_interface: str | None  # for gangs of several nodes; None: the one to the driver


@dataclass(frozen=True, kw_only=True)
class About:
    """An agent's description of itself; with `error` if it can't serve."""

    pid: int
    versions: dict[str, str]
    asks_for_token: bool
    description: str = ""  # its devices, for `Exchange.join`
    error: str | None = None


class NodeAgent:
    """The actor. Orders and news have a concurrency group each, and so keep their order."""

    def __init__(self, spec: AgentSpec) -> None:
        self._spec = spec
        self._agent: native.Agent | None = None

    def begin(self) -> About:
        """Take the node's devices; called once."""
        about: dict[str, Any] = {
            "pid": os.getpid(),
            "versions": versions.here(),
            "asks_for_token": asks_for_token(),
        }
        spec = self._spec
        # Ray sets these for its workers; ranks must not inherit them.
        for name in ("OMP_NUM_THREADS", "RAY_JOB_ID", "RAY_RAYLET_PID"):
            os.environ.pop(name, None)
        try:
            if spec.network_interface is None:
                address = network.address_to(spec.driver)
            else:
                address = network.address_of(spec.network_interface)
            self._agent = native.agent(
                spec.node,
                devices=spec.devices,
                fewer_will_do=spec.fewer_will_do,
                python=sys.executable,
                python_path=[*spec.python_path, *_own_path()],
                cwd=spec.cwd if Path(spec.cwd).is_dir() else str(Path.home()),
                run=spec.run,
                interface=spec.network_interface or network.interface_of(address),
                open_store=AgentStore(address).open,
            )
        except (SaturnError, OSError) as error:
            return About(**about, error=str(error))
        return About(**about, description=self._agent.description())

    def answer(self, directory: str, word: str) -> str | None:
        """Answer for this node in a `storage.Proof`."""
        return storage.answer(directory, word, self._spec.node)

    def take(self, letters: list[str]) -> None:
        """Do what letters say; letters that were taken before are skipped."""
        if self._agent is not None:
            self._agent.take(letters)

    def news(self, at_most_s: float, num_read: int) -> tuple[list[str], str | None]:
        """Letters beyond the `num_read` that the driver has read; why there will be no more."""
        if self._agent is None:
            return [], "it was never begun"
        try:
            return self._agent.news(at_most_s, num_read), None
        except SaturnError as error:
            return [], str(error)


def _own_path() -> list[str]:
    """Where this node's Python finds packages, without the paths that Ray adds for its workers."""
    ours = Path(ray.__file__).parent
    return [path for path in sys.path if path and ours not in Path(path).parents]


def actor_class() -> Any:
    """`NodeAgent` as a class of Ray actors."""
    return ray.remote(concurrency_groups={"orders": 1, "news": 1}, max_restarts=0)(NodeAgent)
