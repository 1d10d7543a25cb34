"""A node's address and network interface over which other nodes reach it.

By default it is the interface that reaches the driver, since Ray reaches all nodes over it too.
Nothing here opens a connection.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

from saturn.errors import InvalidInput

#: The kernel's request for the IPv4 address of an interface.
_SIOCGIFADDR = 0x8915


def address_to(other: str) -> str:
    """This machine's address from which packets to the address `other` leave."""
    family = socket.AF_INET6 if ":" in other else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as packets:
        packets.connect((other, 9))  # sends nothing
        return str(packets.getsockname()[0])


def interface_of(address: str) -> str | None:
    """The interface that has `address`; None if no interface has it."""
    wanted = ipaddress.ip_address(address.partition("%")[0])
    return next((name for name, found in _addresses() if found == wanted), None)


def address_of(interface: str) -> str:
    """An address of `interface`, IPv4 if it has one; raises `InvalidInput`."""
    found = [address for name, address in _addresses() if name == interface]
    if not found:
        known = ", ".join(sorted({name for name, _ in _addresses()}))
        raise InvalidInput(
            f"it has no network interface `{interface}` with an address; it has {known}"
        )
    return str(min(found, key=lambda address: (address.version, address.is_link_local)))


def _addresses() -> Iterator[tuple[str, ipaddress.IPv4Address | ipaddress.IPv6Address]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asked:
        for _, name in socket.if_nameindex():
            with contextlib.suppress(OSError):  # the interface has no IPv4 address
                request = struct.pack("256s", name.encode()[:15])
                answer = fcntl.ioctl(asked.fileno(), _SIOCGIFADDR, request)
                yield name, ipaddress.IPv4Address(answer[20:24])
    with contextlib.suppress(OSError):  # the machine has no IPv6
        for line in Path("/proc/net/if_inet6").read_text().splitlines():
            digits, *_, name = line.split()
            yield name, ipaddress.IPv6Address(bytes.fromhex(digits))
