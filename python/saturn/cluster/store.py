"""The store where ranks of several nodes meet: each agent has one, open as long as it lives.

The store is bound to a port of the kernel's choice before its address is told. So no two processes
race for a port. It listens only on one of the node's networks. Names in the store begin with the
attempt's directory.
"""

from __future__ import annotations

import socket
import threading
from typing import Any


class AgentStore:
    """Opens the store at the first request, because importing torch for it takes seconds."""

    def __init__(self, address: str) -> None:
        """`address` is the node's address in the network of the gangs."""
        self._address = address
        self._lock = threading.Lock()
        self._store: Any = None
        self._at = ""

    def open(self) -> str:
        """The store's address, `host:port`. Errors are raised."""
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
