"""Carry letters between a run and its agents, and watch the nodes: threads that call Ray.

- One thread sends orders. Each agent gets its orders in sequence.
- One thread always has one request for news at each agent, and repeats it after each answer.
- One thread watches which nodes exist.
- One thread seats agents: on nodes without an agent that the run may use, and after a wait on nodes
  whose agent was lost.

An agent whose process or node has died is lost. So is an agent that does not answer for longer than
an agent serves without a driver; it is ended then. While this program itself stands still, no
silence is counted. If Ray could not complete a call, as after a broken connection, the call is made
again. Letters have numbers, so the reader skips those that did arrive.

If Ray's head is gone, agents still answer, but calls about nodes hang, and after a minute the nodes
end too. So the run is stopped before that, at checkpoints.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import ActorUnavailableError, GetTimeoutError, RayError

from saturn import native
from saturn.cluster import seating
from saturn.cluster.seating import FreeNode, Seat, Unusable
from saturn.cluster.storage import Proof
from saturn.cluster.wish import ClusterWish
from saturn.errors import SaturnError

#: Seconds after which an agent answers that it has no news.
_NEWS_S = 2.0
#: An agent that is silent for longer is lost: an agent serves for less without a driver
#: (`agent.rs`).
_SILENCE_S = 180.0
#: A node that doesn't answer for so long about the run directory is not used.
_PROOF_S = 30.0
#: If a look comes this many seconds late, this program itself stood still.
_STOOD_STILL_S = 5.0
#: Seconds between two looks for answers, and between two looks at the nodes.
_LOOK_S, _NODES_S = 0.2, 1.0
#: Seconds between two looks for the answer to orders: the agent's next orders wait for it.
_SOON_S = 0.02
#: Seconds after an unanswered call until it is made again.
_RETRY_S = 0.5
#: Seconds of silence of Ray's head after which the run stops at checkpoints, and then at once.
_HEAD_S = (15.0, 35.0)
#: Seconds after a failure until a node is tried again: at first, and at most.
_AGAIN_S, _AT_MOST_S = 2.0, 60.0

#: In place of the answer of a call that has none.
_UNANSWERED: Any = object()


@dataclass
class _Trouble:
    """A node without an agent, and when it is tried again."""

    again_at: float = 0.0
    wait_s: float = _AGAIN_S


@dataclass
class Carrier:
    """The threads, and the agents that they serve."""

    exchange: native.Exchange
    wish: ClusterWish
    resource: str  # "GPU" or "CPU": the kind of the run's devices
    run_dir: Path
    press: Callable[[], None]  # asks the run to stop
    seats: dict[int, Seat] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=itertools.count)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _over: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)
    _troubles: dict[str, _Trouble] = field(default_factory=dict)
    _head_heard: float = field(default_factory=time.monotonic)
    _presses: int = 0

    @property
    def has_head(self) -> bool:
        """Whether Ray's head has answered recently."""
        return self._presses == 0

    def join(self, seat: Seat) -> None:
        """Tell the run that an agent has come."""
        number = next(self._numbers)
        with self._lock:
            self.seats[number] = seat
        self.exchange.join(number, seat.about.description)

    def start(self) -> None:
        """Start the threads."""
        for work in (self._send_orders, self._fetch_news, self._watch_nodes, self._seat_nodes):
            name = f"saturn cluster {work.__name__.strip('_')}"
            thread = threading.Thread(target=self._guarded, args=(work,), name=name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop the threads, and end every agent."""
        self._over.set()
        self.exchange.close()
        for thread in self._threads:
            thread.join(timeout=5 * _NODES_S if self.has_head else _LOOK_S)
        for number in list(self.seats):
            self._lose(number, "the run is over")

    def _guarded(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:  # the connection to the cluster is gone, with every agent
            if self._over.is_set():
                return
            self._over.set()
            reason = f"the cluster is lost: {seating.in_words(error)}"
            self.exchange.note(reason)
            for number in list(self.seats):
                self._lose(number, reason)
            # Nothing can be saved any more, so the run stops at once.
            self.press()
            self.press()

    def _send_orders(self) -> None:
        """Carry orders. An agent has one call at a time, so that a call can be made again."""
        unconfirmed: dict[int, list[str]] = {}
        sent: dict[Any, tuple[int, int]] = {}
        retry_at: dict[int, float] = {}
        while (orders := self.exchange.orders(_SOON_S if sent else _LOOK_S)) is not None:
            for number, letter in orders:
                unconfirmed.setdefault(number, []).append(letter)
            for reference in _finished(sent, at_most=len(sent), within_s=0):
                number, count = sent.pop(reference)
                if self._result(reference, number) is _UNANSWERED:
                    retry_at[number] = time.monotonic() + _RETRY_S
                else:
                    del unconfirmed[number][:count]
            busy = {number for number, _ in sent.values()}
            for number, letters in list(unconfirmed.items()):
                if number in busy or retry_at.get(number, 0.0) > time.monotonic():
                    continue
                seat = self.seats.get(number)
                if seat is None or not letters:
                    del unconfirmed[number]
                    continue
                take = seat.actor.take.options(concurrency_group="orders")
                sent[take.remote(list(letters))] = number, len(letters)

    def _fetch_news(self) -> None:
        asked: dict[Any, int] = {}
        silent_since: dict[int, float] = {}
        num_read: dict[int, int] = {}
        retry_at: dict[int, float] = {}
        looked = time.monotonic()
        while not self._over.is_set():
            looked, stood_s = _since(looked)
            silent_since = {number: since + stood_s for number, since in silent_since.items()}
            self._head_heard += stood_s
            self._look_at_head()
            waiting = set(asked.values())
            for number, seat in list(self.seats.items()):
                if number not in waiting and retry_at.get(number, 0.0) <= looked:
                    news = seat.actor.news.options(concurrency_group="news")
                    asked[news.remote(_NEWS_S, num_read.get(number, 0))] = number
                    silent_since.setdefault(number, looked)
            if not asked:
                self._over.wait(_LOOK_S)
            done = _finished(asked, at_most=1, within_s=_LOOK_S)
            if done:
                done = _finished(asked, at_most=len(asked), within_s=0)
            for reference in done:
                number = asked.pop(reference)
                answer = self._result(reference, number)
                if answer is _UNANSWERED:
                    retry_at[number] = looked + _RETRY_S
                else:
                    silent_since.pop(number, None)
                    num_read[number] = self._deliver(number, *answer)
            for number, since in list(silent_since.items()):
                if looked - since > _SILENCE_S:
                    self._lose(number, f"it has not answered for {_SILENCE_S:.0f} s")
                if number not in self.seats:
                    del silent_since[number]
                    asked = {call: other for call, other in asked.items() if other != number}

    def _result(self, reference: Any, number: int) -> Any:
        """A call's answer. `_UNANSWERED`: nobody knows whether it arrived, or the agent is lost."""
        try:
            return ray.get(reference)
        except ActorUnavailableError:
            return _UNANSWERED
        except RayError as error:
            self._lose(number, f"its agent or the node has died ({type(error).__name__})")
            return _UNANSWERED

    def _look_at_head(self) -> None:
        """Have the run stopped if Ray's head is silent."""
        silence = time.monotonic() - self._head_heard
        if self._presses < len(_HEAD_S) and silence > _HEAD_S[self._presses]:
            self._presses += 1
            if self._presses == 1:
                self.exchange.note(
                    f"Ray's head has not answered for {silence:.0f} s: the run stops at "
                    "checkpoints; go on with it on another cluster"
                )
            self.press()

    def _deliver(self, number: int, letters: list[str], reason: str | None) -> int:
        """Give the run an agent's letters; how many of the agent's letters were read so far."""
        num_read = 0
        try:
            num_read = self.exchange.deliver(number, letters)
        except SaturnError as error:
            reason = str(error)
        if reason is not None and not self._over.is_set():
            self._lose(number, reason)
        return num_read

    def _lose(self, number: int, reason: str) -> None:
        with self._lock:
            seat = self.seats.pop(number, None)
        if seat is None:
            return
        self._trouble(seat.node_id)
        self.exchange.lose(number, reason)
        seat.free(has_head=self.has_head)

    def _trouble(self, node_id: str) -> None:
        trouble = self._troubles.setdefault(node_id, _Trouble())
        trouble.again_at = time.monotonic() + trouble.wait_s
        trouble.wait_s = min(2 * trouble.wait_s, _AT_MOST_S)

    def _watch_nodes(self) -> None:
        while not self._over.wait(_NODES_S):
            _check_connected()
            nodes = seating.alive()
            self._head_heard = time.monotonic()
            for number, seat in list(self.seats.items()):
                if seat.node_id not in nodes:
                    self._lose(number, "the node has died")

    def _seat_nodes(self) -> None:
        while not self._over.wait(_NODES_S):
            _check_connected()
            try:
                self._seat_more()
            except (RayError, OSError) as error:  # a node is gone meanwhile, or the disk is full
                if not self._over.is_set():
                    self.exchange.note(f"no agent could be started: {seating.in_words(error)}")
                    self._over.wait(_AT_MOST_S)

    def _seat_more(self) -> None:
        seated = {seat.node_id: seat.name for seat in list(self.seats.values())}
        room = None if self.wish.nodes is None else self.wish.nodes - len(seated)
        now = time.monotonic()
        wanted: list[FreeNode] = [
            node
            for node in seating.free_nodes(seated, self.resource)
            if node.free >= (self.wish.gpus_per_node or 1)
            and self._troubles.get(node.id, _Trouble()).again_at <= now
        ][:room]
        if not wanted:
            return
        found = seating.seat(wanted, self.wish, run=str(self.run_dir))
        with Proof(self.run_dir) as proof:
            for each in found:
                wrong = proved(proof, each) if isinstance(each, Seat) else each
                if isinstance(each, Seat):
                    if wrong is None and not self._over.is_set():
                        self.join(each)
                        continue
                    each.free()
                if wrong is not None and each.node_id not in self._troubles:
                    self.exchange.note(str(wrong))
                self._trouble(each.node_id)


def _since(looked: float) -> tuple[float, float]:
    """(the time now, seconds for which this program stood still since `looked`, mostly 0)."""
    now = time.monotonic()
    passed = now - looked
    return now, passed if passed > _STOOD_STILL_S else 0.0


def _finished(calls: Mapping[Any, Any], *, at_most: int, within_s: float) -> list[Any]:
    """The calls that have been answered."""
    _check_connected()
    if not calls:
        return []
    done, _ = ray.wait(list(calls), num_returns=at_most, timeout=within_s)
    return list(done)


def _check_connected() -> None:
    """Raise if the program has disconnected from Ray, which would start a cluster of its own."""
    if not ray.is_initialized():
        raise ConnectionError("the program has disconnected from Ray")


def proved(proof: Proof, seat: Seat) -> Unusable | None:
    """What is wrong with a node's view of the run directory; None if nothing is."""
    try:
        said = ray.get(seat.actor.answer.remote(str(proof.directory), proof.word), timeout=_PROOF_S)
    except GetTimeoutError:
        reason = f"within {_PROOF_S:.0f} s it did not say whether it sees the run directory"
        return Unusable(node_id=seat.node_id, name=seat.name, reason=reason, is_late=True)
    except RayError as error:
        said = seating.in_words(error)
    wrong = proof.wrong_with(seat.name, said)
    if wrong is None:
        return None
    return Unusable(node_id=seat.node_id, name=seat.name, reason=wrong)
