"""This process's connection to a Ray cluster.

- A cluster that others can reach must ask for a token (Ray 2.52 or later). Without a token, anyone
  who reaches the cluster can run programs on it. A cluster on loopback alone needs no token.
- A connection that the program itself has made is kept at the end.
- Signals stay the program's, as on one machine (`saturn.runs.stopping`).
"""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import os
import signal
import socket
import threading
import warnings
from collections.abc import Iterator
from typing import Any

from saturn.cluster.wish import ClusterWish, host_and_port
from saturn.errors import InvalidInput

#: The oldest version of Ray: earlier ones have no tokens.
_OLDEST = (2, 52)
#: Seconds that the head may take to accept a connection.
_CONNECT_S = 5.0
_HOW_TO_TOKEN = (
    "make a token with `ray get-auth-token --generate`, copy ~/.ray/auth_token to every node, and "
    "set RAY_AUTH_MODE=token for every `ray start` and for this program"
)


class Connection:
    """A connection; `close` disconnects only what was connected here."""

    def __init__(self, wish: ClusterWish) -> None:
        """Connect; raises `InvalidInput` if connecting fails or isn't safe."""
        self._ray = ray = ray_module()
        self._is_own = not ray.is_initialized()
        if self._is_own:
            _connect(ray, wish.address)
        try:
            address: str = ray.get_runtime_context().gcs_address
            #: Whether anyone besides this machine's users may reach the cluster.
            self.is_reachable = not _is_loopback(address)
            if self.is_reachable and not asks_for_token():
                raise InvalidInput(
                    f"the Ray cluster at {address} asks for no token, so anyone who reaches the "
                    f"cluster can run programs on it; {_HOW_TO_TOKEN}"
                )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Disconnect, if the connection was made here."""
        if self._is_own:
            self._is_own = False
            self._ray.shutdown()


def asks_for_token() -> bool:
    """Whether Ray asks for a token in this process, which decided that at its start."""
    try:
        from ray._raylet import AuthenticationMode, get_authentication_mode
    except ImportError:  # later versions of Ray may have moved it
        return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
    return bool(get_authentication_mode() == AuthenticationMode.TOKEN)


def ray_module() -> Any:
    """The module `ray`; raises `InvalidInput` if it is missing or too old."""
    # Ray ends a program that can't reach its head for this long; a program does more than its run.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "3600")
    oldest = ".".join(map(str, _OLDEST))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own warnings mean nothing to users
            import ray
    except ImportError as error:
        raise InvalidInput(
            f"a cluster needs Ray, which is not there ({error}); get it with: "
            f"pip install 'ray>={oldest}'"
        ) from None
    version = tuple(int(part) for part in ray.__version__.split(".")[:2])
    if version < _OLDEST:
        raise InvalidInput(
            f"a cluster needs Ray {oldest} or later, and this is "
            f"{ray.__version__}; get it with: pip install 'ray>={oldest}'"
        )
    return ray


def _connect(ray: Any, address: str) -> None:
    if address != "auto":
        _knock(address)
    from ray.exceptions import AuthenticationError

    try:
        with warnings.catch_warnings(), _handler_of_sigterm_kept():
            warnings.simplefilter("ignore")
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        _hush()
    except AuthenticationError:
        raise InvalidInput(
            f"the Ray cluster at {address} asks for a token, and this program has none, or a wrong "
            f"one: {_HOW_TO_TOKEN}"
        ) from None
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        if address != "auto":
            raise InvalidInput(
                f"what answers at {address} is no head of a Ray cluster, or asks for a token that "
                f"this program does not have ({said}); {_HOW_TO_TOKEN}"
            ) from None
        raise InvalidInput(
            f"this machine is in no Ray cluster ({said}); start one with `ray start --head`, and "
            "`ray start --address=…` on every other node"
        ) from None


@contextlib.contextmanager
def _handler_of_sigterm_kept() -> Iterator[None]:
    """Restore the program's handler: Ray's would end the program with another exit code."""
    if threading.current_thread() is not threading.main_thread():  # Ray sets none here either
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None:  # None: C code has set it, and Python can't restore it
            signal.signal(signal.SIGTERM, handler)


def _hush() -> None:
    """Keep Ray from printing the log of each dying node on the program's standard output.

    Ray has no setting for that. The run itself reports what happens to its nodes.
    """
    import ray._private.worker as internals

    if hasattr(internals, "print_to_stdstream"):
        internals.print_to_stdstream = lambda *_, **__: None


def _knock(address: str) -> None:
    """Refuse an address where nobody answers, since Ray itself would take minutes."""
    try:
        with socket.create_connection(host_and_port(address), timeout=_CONNECT_S):
            return
    except OSError as error:
        raise InvalidInput(
            f"there is no Ray cluster at {address}: {error.strerror or error}"
        ) from None


def _is_loopback(address: str) -> bool:
    host, _ = host_and_port(address)
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
