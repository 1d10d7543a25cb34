"""Choose the nodes that a run uses, and start an agent on each, which holds its devices.

A placement group of one bundle, bound to its node, keeps the devices from other users of the
cluster. Nodes are seated in parallel: each step begins on all of them before any is waited for. A
node that takes too long is reported as late, not as unusable, because it may be tried again. The
first agent of a run is waited for longer, since there is nothing to begin with until it starts.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray
from ray._private.state import available_resources_per_node
from ray.exceptions import GetTimeoutError, RayError
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from saturn.cluster import versions
from saturn.cluster.agent import About, AgentSpec, actor_class
from saturn.cluster.connection import asks_for_token
from saturn.cluster.wish import ClusterWish
from saturn.errors import InvalidInput
from saturn.tasks.surroundings import program_path

#: Seconds that a placement group and an agent may take together, while other nodes can train.
_SEAT_S = 60.0
#: The same while no agent has started: a run can't begin without one, and on a machine whose cores
#: are all busy an agent takes minutes to import its modules.
_FIRST_SEAT_S = 300.0
#: Seconds that an agent's answer may take from its node, once it is there.
_ANSWER_S = 10.0


@dataclass(frozen=True, kw_only=True)
class FreeNode:
    """A node of the cluster, with the devices that a run may use."""

    id: str  # Ray's id
    name: str
    resource: str  # "GPU" or "CPU"
    free: int
    total: int

    def __str__(self) -> str:
        what = "GPUs" if self.resource == "GPU" else "CPU slots"
        return f"{self.name} has {self.free} free {what} of {self.total}"


@dataclass(frozen=True, kw_only=True)
class Seat:
    """An agent on a node."""

    node_id: str
    name: str
    actor: Any
    group: Any
    about: About

    def free(self, *, has_head: bool = True) -> None:
        """End the agent, whatever it is doing, and release its devices.

        Without Ray's head nobody keeps the devices for us, and releasing them would hang.
        """
        end(self.actor, self.group if has_head else None)


@dataclass(frozen=True, kw_only=True)
class Unusable:
    """Why a node can't be used now."""

    node_id: str
    name: str
    reason: str
    is_late: bool = False  # it did not answer in time, but may do so later

    def __str__(self) -> str:
        if self.is_late:
            return f"node `{self.name}` is late: {self.reason}"
        return f"node `{self.name}` can't be used: {self.reason}"


def alive() -> dict[str, Mapping[str, Any]]:
    """The nodes that Ray knows to be alive, by their ids."""
    return {node["NodeID"]: node for node in ray.nodes() if node["Alive"]}


def free_nodes(seated: Mapping[str, str], resource: str | None = None) -> list[FreeNode]:
    """Nodes with devices but without an agent; `seated` are names by node id.

    Devices are of kind `resource`; by default GPUs if any node has one, else CPU slots.
    """
    nodes = alive()
    if resource is None:
        has_gpus = any(node["Resources"].get("GPU", 0) >= 1 for node in nodes.values())
        resource = "GPU" if has_gpus else "CPU"
    free = available_resources_per_node()
    taken = set(seated.values())
    found = []
    for node_id, node in nodes.items():
        total = int(node["Resources"].get(resource, 0))
        if node_id in seated or total == 0:
            continue
        name = _fresh_name(node, taken)
        taken.add(name)
        num_free = int(free.get(node_id, {}).get(resource, 0))
        found.append(FreeNode(id=node_id, name=name, resource=resource, free=num_free, total=total))
    return found


def _fresh_name(node: Mapping[str, Any], taken: set[str]) -> str:
    """The node's given name, or else its host's name; with a number if that is taken."""
    given, host = str(node.get("NodeName") or ""), str(node["NodeManagerHostname"])
    name = host if given in ("", str(node["NodeManagerAddress"])) else given
    # The name is also used for a directory, and to mark processes.
    name = "".join(letter if letter.isalnum() or letter in "._-" else "-" for letter in name)
    number, fresh = 2, name
    while fresh in taken:
        fresh, number = f"{name}-{number}", number + 1
    return fresh


def chosen(wish: ClusterWish, nodes: Sequence[FreeNode]) -> list[FreeNode]:
    """The nodes to begin with; raises `InvalidInput` if there are not enough."""
    listed = "; ".join(str(node) for node in nodes) or "it has no node with devices"
    if wish.gpus_per_node is not None and all(node.total < wish.gpus_per_node for node in nodes):
        raise InvalidInput(
            f"gpus_per_node is {wish.gpus_per_node}, which no node of the cluster has: {listed}"
        )
    usable = [node for node in nodes if node.free >= (wish.gpus_per_node or 1)]
    if not usable:
        wanted = "" if wish.gpus_per_node is None else f" {wish.gpus_per_node}"
        raise InvalidInput(f"no node of the cluster has{wanted} free devices: {listed}")
    if wish.nodes is not None:
        if len(usable) < wish.nodes:
            raise InvalidInput(
                f"nodes is {wish.nodes}, but {len(usable)} of the cluster can be used: {listed}"
            )
        usable = sorted(usable, key=lambda node: -node.free)[: wish.nodes]
    return usable


def seat(
    nodes: Sequence[FreeNode],
    wish: ClusterWish,
    *,
    run: str,
    tell: Callable[[str], None] | None = None,
) -> list[Seat | Unusable]:
    """For each node, an agent on it, or why there is none.

    With `tell`, the run has no agent yet: the first is waited for longer, and `tell` is given a
    line that says so.
    """
    began_s = time.monotonic()
    begun = [_begin(node, wish, run) for node in nodes]
    ready = _started(begun, tell)
    waited_s = time.monotonic() - began_s
    seated: list[Seat | Unusable] = []
    for each in begun:
        node, is_late = each.node, False
        try:
            # An agent may have started since; an answer that is there is taken.
            patience_s = _ANSWER_S if each.about in ready else 0
            about: About = ray.get(each.about, timeout=patience_s)
            wrong = about.error or _unfit(about)
        except GetTimeoutError:
            is_late = True
            wrong = f"its agent did not start within {waited_s:.0f} s"
        except RayError as error:
            wrong = in_words(error)
        if wrong is None:
            seated.append(
                Seat(
                    node_id=node.id,
                    name=node.name,
                    actor=each.actor,
                    group=each.group,
                    about=about,
                )
            )
        else:
            end(each.actor, each.group)
            seated.append(Unusable(node_id=node.id, name=node.name, reason=wrong, is_late=is_late))
    return seated


@dataclass(frozen=True, kw_only=True)
class _Begun:
    """An agent that has been asked to start."""

    node: FreeNode
    group: Any
    actor: Any
    about: Any  # Ray's reference to an `About`


def _begin(node: FreeNode, wish: ClusterWish, run: str) -> _Begun:
    """Ask for a node's devices and for an agent there; waits for neither."""
    count = wish.gpus_per_node or node.free
    group = placement_group(
        [{node.resource: count}], bundle_label_selector=[{"ray.io/node-id": node.id}]
    )
    spec = AgentSpec(
        node=node.name,
        devices=count,
        fewer_will_do=wish.gpus_per_node is None,
        python_path=program_path(),
        cwd=str(Path.cwd()),
        run=run,
        driver=ray.util.get_node_ip_address(),
        network_interface=wish.network_interface,
    )
    counts = {"num_gpus": count} if node.resource == "GPU" else {"num_cpus": count}
    where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=0)
    placed = actor_class().options(**{"num_cpus": 0, **counts}, scheduling_strategy=where)
    actor = placed.remote(spec)
    return _Begun(node=node, group=group, actor=actor, about=actor.begin.remote())


def _started(begun: Sequence[_Begun], tell: Callable[[str], None] | None) -> set[Any]:
    """The answers of the agents that start in time, whatever they say."""
    asked = [each.about for each in begun]
    ready, _ = ray.wait(asked, num_returns=len(asked), timeout=_SEAT_S, fetch_local=False)
    if not ready and tell is not None:
        names = ", ".join(f"`{each.node.name}`" for each in begun)
        tell(
            f"saturn: no agent has started on {names} within {_SEAT_S:.0f} s; the run waits for "
            f"the first up to {_FIRST_SEAT_S / 60:.0f} minutes"
        )
        ready, _ = ray.wait(asked, timeout=_FIRST_SEAT_S - _SEAT_S, fetch_local=False)
    return set(ready)


def end(actor: Any, group: Any) -> None:
    """End an actor, whatever it is doing, and release the devices of its group, if given.

    If the program has disconnected from Ray, Ray has already ended both.
    """
    if not ray.is_initialized():
        return
    ray.kill(actor, no_restart=True)
    if group is not None:
        remove_placement_group(group)


def in_words(error: BaseException) -> str:
    """A Ray error in one line."""
    text = str(error)
    if "No module named 'saturn" in text:
        return "Saturn is not installed in the Python that Ray runs in there"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _unfit(about: About) -> str | None:
    if (difference := versions.difference(about.versions)) is not None:
        return f"it has {difference}"
    if asks_for_token() and not about.asks_for_token:
        return "its Ray asks for no token, though this program has one (RAY_AUTH_MODE)"
    return None
