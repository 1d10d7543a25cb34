"""A user's request for a cluster, checked before anything is connected.

The check needs neither Ray nor a network; `connection` finds out whether the cluster is there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from saturn.errors import InvalidInput
from saturn.plain.given_numbers import check_whole


@dataclass(frozen=True, kw_only=True)
class ClusterWish:
    """A cluster, and how much of it a run may use."""

    address: str  # "auto", or host:port of Ray's head
    nodes: int | None  # how many; None: all that have free devices
    gpus_per_node: int | None  # GPUs, or CPU slots, of each node; None: all that are free
    network_interface: str | None = None  # the nodes' interface for gangs across them


def checked(
    *,
    cluster: Any,
    nodes: int | None,
    gpus_per_node: int | None,
    devices: int | None,
    nodes_per_task: int | None = None,
    network_interface: Any = None,
    wait: bool = False,
) -> ClusterWish | None:
    """The request; None if no cluster is given. Raises `TypeError` or `InvalidInput`."""
    check_whole("nodes", nodes, least=1)
    check_whole("gpus_per_node", gpus_per_node, least=1)
    if cluster is None:
        only_there = {
            "nodes": nodes,
            "gpus_per_node": gpus_per_node,
            "nodes_per_task": nodes_per_task,
            "network_interface": network_interface,
        }
        for name, value in only_there.items():
            if value is not None:
                raise InvalidInput(
                    f'{name} is {value}, but no cluster is given: cluster="auto", or --cluster auto'
                )
        return None
    if not isinstance(cluster, str):
        kind = type(cluster).__name__
        raise TypeError(f'cluster is a {kind}; it must be "auto" or the address of Ray\'s head')
    if devices is not None:
        raise InvalidInput(
            f"devices is {devices}, which counts those of one machine; on a cluster, say "
            "gpus_per_node and nodes"
        )
    if wait:
        raise InvalidInput(
            "wait is True, which waits for devices of one machine; on a cluster, Ray decides when "
            "nodes are free"
        )
    if cluster != "auto":
        host_and_port(cluster)
    if network_interface is not None and not isinstance(network_interface, str):
        kind = type(network_interface).__name__
        raise TypeError(f'network_interface is a {kind}; it must be a name such as "eth0"')
    return ClusterWish(
        address=cluster,
        nodes=nodes,
        gpus_per_node=gpus_per_node,
        network_interface=network_interface,
    )


def host_and_port(address: str) -> tuple[str, int]:
    """The parts of `host:port`; raises `InvalidInput`."""
    host, colon, port = address.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if address.startswith("ray://"):
        raise InvalidInput(
            f'cluster is "{address}", which is for Ray clients; a run is driven on a node of the '
            'cluster: call from there, with cluster="auto" or host:port of the head'
        )
    if not (colon and host and port.isdecimal() and 0 < int(port) < 65536) or "/" in host:
        raise InvalidInput(
            f'cluster is "{address}"; it must be "auto" or the address of Ray\'s head, such as '
            '"10.0.0.1:6379"'
        )
    return host, int(port)
