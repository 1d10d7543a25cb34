"""Agents without processes: they answer letters as agents with ranks would, and ranks are counters.

Many are hosted by one Ray actor, so that a hundred fit one machine. Their driver can't tell them
from agents: it makes the same calls and reads the same letters. What they hold back, and for how
long, is what an agent does (`crates/saturn-runtime/src/cluster/agent.rs`).
"""

from __future__ import annotations

import json
import threading
import time
from typing import Any

#: Of the letters (`letters.rs`).
_VERSION = 3
#: What a step of theirs takes.
_STEP_S = 0.01
_LOOK_S = 0.05

_INSPECTION = {
    "parameters": 1,
    "parameter_bytes": 4,
    "trainable_bytes": 4,
    "layers": None,
    "checkpoint_bytes": 12,
    "optimizer_state_ratio": 2.0,
    "batches_per_epoch": 50,
    "verdicts": [],
}
_MEASURED = {
    "outcome": "measured",
    "step_s": _STEP_S,
    "setup_s": 0.1,
    "checkpoint_s": 0.1,
    "peak_memory_bytes": 1 << 20,
    "timed_steps": 10,
    "batches_per_epoch": 50,
}


class StandIn:
    """One agent. Calls come from two threads."""

    def __init__(self, reports_a_second: float) -> None:
        self._every_s = 1.0 / reports_a_second
        self._pace_s = 0.0  # how long after a delivery signs of life wait: the driver says
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._epoch = ""
        self._next_letter = 0
        self._letters: list[str] = []
        self._alive: dict[tuple[int, int], Any] = {}  # attempt and rank: what it said last
        self._sent_at = 0.0
        self._trains: dict[int, tuple[int, float]] = {}  # attempt: ranks, since when
        self._due: dict[int, list[float]] = {}  # attempt: when each rank reports next
        self.num_reports = 0

    def take(self, letters: list[str]) -> None:
        """Do what letters say."""
        with self._changed:
            for text in letters:
                letter = json.loads(text)
                self._epoch = letter["epoch"]
                self._obey(letter["content"])
            self._changed.notify_all()

    def news(self, at_most_s: float) -> tuple[list[str], None]:
        """Letters to the driver; none is lost here, so each is handed out once."""
        until = time.monotonic() + at_most_s
        with self._changed:
            while True:
                now = time.monotonic()
                self._report(now)
                if now - self._sent_at >= self._pace_s:
                    self._seal_signs_of_life()
                if self._letters:
                    letters, self._letters = self._letters, []
                    self._sent_at = now
                    return letters, None
                if now >= until:
                    return [], None
                self._changed.wait(_LOOK_S)

    def _report(self, now: float) -> None:
        for attempt, due in self._due.items():
            since = self._trains[attempt][1]
            for rank, at in enumerate(due):
                if at <= now:
                    due[rank] = max(at + self._every_s, now)
                    step = int((now - since) / _STEP_S)
                    progress = {"type": "progress", "step": step, "loss": 0.5, "step_s": _STEP_S}
                    self._alive[attempt, rank] = progress
                    self.num_reports += 1

    def _obey(self, order: Any) -> None:
        if order == "end":
            self._say({"over": {"left": []}})
        elif "begin" in order:
            self._pace_s = order["begin"]["pace_s"]
            self._say("ready")
        elif "launch" in order:
            self._launch(order["launch"]["order"])
        elif (ending := order.get("stop") or order.get("kill")) is not None:
            self._end(ending["attempt"], is_killed="kill" in order)

    def _launch(self, order: Any) -> None:
        attempt, num_ranks = order["attempt"], order["num_ranks"]
        if order["purpose"] == "train":
            now = time.monotonic()
            self._trains[attempt] = num_ranks, now
            self._due[attempt] = [now + self._every_s * r / num_ranks for r in range(num_ranks)]
            self._tell(attempt, 0, {"type": "started", "step": 0, "setup_s": 0.1})
            return
        report = {"type": "inspected", "inspection": _INSPECTION}
        if order["purpose"] == "trial":
            report = {"type": "trial", "knobs": {}, "outcome": _MEASURED, "step": None}
        self._tell(attempt, 0, report)
        self._exit(attempt, num_ranks)

    def _end(self, attempt: int, *, is_killed: bool) -> None:
        if (found := self._trains.pop(attempt, None)) is None:
            return
        del self._due[attempt]
        if not is_killed:
            step = int((time.monotonic() - found[1]) / _STEP_S)
            saved = {"type": "checkpoint", "step": step, "save_s": 0.1, "blocked_s": 0.1}
            self._tell(attempt, 0, saved)
            self._tell(attempt, 0, {"type": "stopped", "step": step})
        self._exit(attempt, found[0])

    def _exit(self, attempt: int, num_ranks: int) -> None:
        for rank in range(num_ranks):
            ended = {"attempt": attempt, "rank": rank, "code": 0, "last_words": ""}
            self._say({"exited": ended})

    def _tell(self, attempt: int, rank: int, report: Any) -> None:
        self._say({"reported": {"attempt": attempt, "rank": rank, "report": report}})

    def _say(self, content: Any) -> None:
        self._seal_signs_of_life()
        self._seal(content)

    def _seal_signs_of_life(self) -> None:
        alive, self._alive = self._alive, {}
        for (attempt, rank), report in alive.items():
            self._seal({"reported": {"attempt": attempt, "rank": rank, "report": report}})

    def _seal(self, content: Any) -> None:
        letter = {
            "version": _VERSION,
            "epoch": self._epoch,
            "number": self._next_letter,
            "content": content,
        }
        self._next_letter += 1
        self._letters.append(json.dumps(letter))


class Host:
    """The Ray actor that has some of them."""

    def __init__(self, num_agents: int, reports_a_second: float) -> None:
        self._agents = [StandIn(reports_a_second) for _ in range(num_agents)]

    def take(self, index: int, letters: list[str]) -> None:
        """Of one of them."""
        self._agents[index].take(letters)

    def news(self, index: int, at_most_s: float, num_read: int) -> tuple[list[str], None]:
        """Of one of them; `num_read` confirms letters that a stand-in does not keep."""
        return self._agents[index].news(at_most_s)

    def num_reports(self) -> int:
        """Of all, so far."""
        return sum(agent.num_reports for agent in self._agents)


class Handle:
    """One of a host's agents, called as an actor of its own would be."""

    def __init__(self, host: Any, index: int) -> None:
        self.take = _Method(host.take, index)
        self.news = _Method(host.news, index)


class _Method:
    def __init__(self, method: Any, index: int) -> None:
        self._method, self._index = method, index

    def options(self, **options: Any) -> _Method:
        return _Method(self._method.options(**options), self._index)

    def remote(self, *arguments: Any) -> Any:
        return self._method.remote(self._index, *arguments)
