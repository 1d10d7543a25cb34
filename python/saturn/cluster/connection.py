"""This process's connection to a Ray cluster.

- A cluster that others can reach must ask for a token (Ray 2.52 or later): whoever reaches one that
  doesn't can run programs on it. One on loopback alone may do without.
- What the program itself has connected stays connected.
- Signals are the program's, as on one machine (`saturn.runs.stopping`).
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

#: Of Ray: earlier ones know no token.
_OLDEST = (2, 52)
#: How long the head may take to take a connection.
_CONNECT_S = 5.0
_HOW_TO_TOKEN = (
    "make a token with `ray get-auth-token --generate`, copy ~/.ray/auth_token to every node, and "
    "set RAY_AUTH_MODE=token for every `ray start` and for this program"
)


class Connection:
    """A connection; at its end, what was connected here is disconnected."""

    def __init__(self, wish: ClusterWish) -> None:
        """Connect; raises `InvalidInput` where that can't or must not be done."""
        self._ray = ray = ray_module()
        self._is_own = not ray.is_initialized()
        if self._is_own:
            _connect(ray, wish.address)
        try:
            address: str = ray.get_runtime_context().gcs_address
            #: Whether others than this machine's users may reach the cluster.
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
        """Disconnect what was connected here."""
        if self._is_own:
            self._is_own = False
            self._ray.shutdown()


def asks_for_token() -> bool:
    """Whether Ray asks for a token here: in this process, as it was started."""
    try:
        from ray._raylet import AuthenticationMode, get_authentication_mode
    except ImportError:  # moved since
        return os.environ.get("RAY_AUTH_MODE", "").lower() == "token"
    return bool(get_authentication_mode() == AuthenticationMode.TOKEN)


def ray_module() -> Any:
    """Ray, where it is there and new enough."""
    # Ray ends a program that has lost its head for so long: a run's has more to do than its run.
    os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "3600")
    oldest = ".".join(map(str, _OLDEST))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # its own affairs
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
    """Put the program's handler back: Ray's would end the program with another exit code."""
    if threading.current_thread() is not threading.main_thread():  # Ray sets none either
        yield
        return
    handler = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if handler is not None:  # None: it was not set from Python, and Python can't set it
            signal.signal(signal.SIGTERM, handler)


def _hush() -> None:
    """Keep Ray from printing the log of each node that dies on the program's standard output.

    Ray has no setting for it. What a run's nodes come to, the run itself says.
    """
    import ray._private.worker as internals

    if hasattr(internals, "print_to_stdstream"):
        internals.print_to_stdstream = lambda *_, **__: None


def _knock(address: str) -> None:
    """Refuse an address where nobody answers: Ray itself would take minutes to say so."""
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
