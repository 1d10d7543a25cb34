"""The store where ranks of several nodes meet: one an agent, open for as long as the agent lives.

It is bound to a port of the kernel's choice before anybody is told of it, so that no port is raced
for, and listens on one of the node's networks alone. Its names begin with the attempt's directory.
"""

from __future__ import annotations

import socket
import threading
from typing import Any


class AgentStore:
    """Opens the store when it is first asked for: torch, which has it, takes seconds to import."""

    def __init__(self, address: str) -> None:
        """`address` is the node's, in the network of the gangs."""
        self._address = address
        self._lock = threading.Lock()
        self._store: Any = None
        self._at = ""

    def open(self) -> str:
        """Where it listens: `host:port`. What goes wrong is raised."""
        with self._lock:
            if self._store is None:
                from torch._C._distributed_c10d import TCPStore

                family = socket.AF_INET6 if ":" in self._address else socket.AF_INET
                listener = socket.create_server((self._address, 0), family=family)
                port = int(listener.getsockname()[1])
                self._store = TCPStore(
                    self._address,
                    port,
                    is_master=True,
                    wait_for_workers=False,
                    master_listen_fd=listener.detach(),
                )
                self._at = f"{self._address}:{port}"
            return self._at
