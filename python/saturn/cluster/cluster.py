"""A cluster for one run: its agents start before anything is on disk, and serve until its end.

If a node can't be used, the run is refused before it begins, with the reason. If a node is only
slow, the run begins without it, and the node joins when it is ready.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from saturn import native
from saturn.cluster import seating
from saturn.cluster.carrier import Carrier, proved
from saturn.cluster.connection import Connection
from saturn.cluster.seating import Seat, Unusable
from saturn.cluster.storage import Proof
from saturn.cluster.wish import ClusterWish
from saturn.errors import InvalidInput


class Cluster:
    """Agents on the nodes that a run may use. `close` ends them all, in any state."""

    def __init__(self, wish: ClusterWish, *, run: str, tell: Callable[[str], None]) -> None:
        """Connect to Ray, and seat the agents; `run` is where the run will be.

        `tell` is given a line for the person who waits, if no agent starts soon.

        Raises `InvalidInput`, after undoing everything.
        """
        self._wish = wish
        #: The cluster's address, as the user gave it.
        self.address = wish.address
        self._connection = Connection(wish)
        self._seats: list[Seat] = []
        self._late: list[Unusable] = []
        self._carrier: Carrier | None = None
        try:
            nodes = seating.chosen(wish, seating.free_nodes({}))
            self._resource = nodes[0].resource
            refused: list[Unusable] = []
            for found in seating.seat(nodes, wish, run=run, tell=tell):
                if isinstance(found, Seat):
                    self._seats.append(found)
                else:
                    (self._late if found.is_late else refused).append(found)
            self._refuse(refused)
        except BaseException:
            self.close()
            raise

    def serve(self, run_dir: Path, press: Callable[[], None]) -> native.Exchange:
        """Begin to carry letters between the run and its agents; `press` asks the run to stop.

        Raises `InvalidInput` if the run directory isn't on storage that all nodes share.
        """
        try:
            with Proof(run_dir) as proof:
                for seat in list(self._seats):
                    if (wrong := proved(proof, seat)) is None:
                        continue
                    if not wrong.is_late:
                        raise InvalidInput(wrong.reason)
                    self._seats.remove(seat)
                    seat.free()
                    self._late.append(wrong)
        except OSError as error:
            raise InvalidInput(f"this machine can't write to {run_dir}: {error}") from None
        self._refuse([])
        exchange = native.exchange()
        for late in self._late:
            exchange.note(f"{late}; the run begins without it, and it joins when it is ready")
        self._carrier = Carrier(exchange, self._wish, self._resource, run_dir, press)
        while self._seats:
            self._carrier.join(self._seats.pop(0))
        self._carrier.start()
        return exchange

    def _refuse(self, refused: list[Unusable]) -> None:
        """Raise `InvalidInput` if a node can't be used, or if no node is left."""
        if refused or not self._seats:
            raise InvalidInput("; ".join(map(str, refused or self._late)))

    def close(self) -> None:
        """End all agents, and disconnect from Ray."""
        if self._carrier is not None:
            self._carrier.stop()
            self._carrier = None
        while self._seats:
            self._seats.pop().free()
        self._connection.close()
