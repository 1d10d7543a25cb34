"""The threads that carry letters: whose silence is counted, and calls without an answer."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import ActorUnavailableError
from saturn.cluster import carrier as carrier_module
from saturn.cluster.carrier import Carrier


class Call:
    """A call of an actor's, or what makes one."""

    def options(self, **_: Any) -> Call:
        return self

    def remote(self, *_: Any) -> Call:
        return Call()


class LossyAgent:
    """An agent that counts letters. Calls to it get lost, or their answers."""

    def __init__(self, letters: list[str]) -> None:
        self.letters = letters
        self.taken: list[str] = []
        self.num_calls = 0

    def answer(self, method: str, *arguments: Any) -> Any:
        self.num_calls += 1
        if self.num_calls % 4 == 1:
            raise ActorUnavailableError("the call was lost", None)
        answer = getattr(self, f"_{method}")(*arguments)
        if self.num_calls % 4 == 2:
            raise ActorUnavailableError("the answer was lost", None)
        return answer

    def _take(self, letters: list[str]) -> None:
        for letter in letters:
            number = int(letter)
            assert number <= len(self.taken), "a letter came too early"
            if number == len(self.taken):
                self.taken.append(letter)

    def _news(self, _: float, num_read: int) -> tuple[list[str], None]:
        return self.letters[num_read:], None


class LossyMethod:
    def __init__(self, agent: LossyAgent, name: str) -> None:
        self.agent, self.name = agent, name

    def options(self, **_: Any) -> LossyMethod:
        return self

    def remote(self, *arguments: Any) -> Any:
        return lambda: self.agent.answer(self.name, *arguments)


class OneRun:
    """An exchange with three letters for an agent, which ends when all has arrived."""

    def __init__(self) -> None:
        self.outgoing = [["0"], ["1", "2"]]
        self.read: list[str] = []
        self.agent = LossyAgent([f"news {number}" for number in range(3)])

    def orders(self, _: float) -> list[tuple[int, str]] | None:
        if len(self.agent.taken) == 3:
            return None
        letters = self.outgoing.pop(0) if self.outgoing else []
        return [(0, letter) for letter in letters]

    def deliver(self, _: int, letters: list[str]) -> int:
        self.read += letters
        return len(self.read)


@pytest.mark.parametrize(
    ("passing_s", "told"),
    [
        # The program stands still once, for longer than an agent may be silent.
        ([0.0, 500.0, 0.2], ["delivered"]),
        # It looks all the time, and hears nothing.
        ([1.0] * 200, ["lost"]),
    ],
)
def test_time_in_which_the_program_stood_still_is_no_silence_of_an_agent(
    passing_s: list[float], told: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    now_s, happened = [1000.0], []
    passing = iter(passing_s)

    def finished(calls: dict[Any, Any], *, at_most: int, within_s: float) -> list[Any]:
        passed = next(passing, None)
        if passed is None:
            return list(calls)
        now_s[0] += passed
        return []

    monkeypatch.setattr(carrier_module, "_finished", finished)
    monkeypatch.setattr(carrier_module, "time", SimpleNamespace(monotonic=lambda: now_s[0]))
    exchange: Any = SimpleNamespace(note=print)
    wish: Any = None
    carrier = Carrier(exchange, wish, "CPU", tmp_path, press=lambda: None)
    seat: Any = SimpleNamespace(actor=SimpleNamespace(news=Call()))
    carrier.seats[0] = seat

    def end(what: str) -> None:
        happened.append(what)
        carrier._over.set()

    monkeypatch.setattr(carrier, "_look_at_head", lambda: None)
    monkeypatch.setattr(carrier, "_result", lambda reference, number: ([], None))
    monkeypatch.setattr(carrier, "_deliver", lambda *_: end("delivered") or 0)
    monkeypatch.setattr(carrier, "_lose", lambda *_: end("lost"))
    carrier._fetch_news()
    assert happened == told


def test_a_call_without_an_answer_is_made_again_and_nothing_is_read_twice(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    exchange: Any = OneRun()
    wish: Any = None
    monkeypatch.setattr(carrier_module, "_RETRY_S", 0.0)
    monkeypatch.setattr(carrier_module, "_finished", lambda calls, **_: list(calls))
    monkeypatch.setattr(carrier_module.ray, "get", lambda call: call())
    carrier = Carrier(exchange, wish, "CPU", tmp_path, press=lambda: None)
    methods = {name: LossyMethod(exchange.agent, name) for name in ("take", "news")}
    seat: Any = SimpleNamespace(actor=SimpleNamespace(**methods))
    carrier.seats[0] = seat
    monkeypatch.setattr(carrier, "_lose", lambda *_: pytest.fail("an agent was given up"))
    monkeypatch.setattr(carrier, "_look_at_head", lambda: None)
    carrier._send_orders()
    assert exchange.agent.taken == ["0", "1", "2"]

    deliver = exchange.deliver

    def read(number: int, letters: list[str]) -> int:
        if len(exchange.read) == 3:
            carrier._over.set()
        return int(deliver(number, letters))

    monkeypatch.setattr(exchange, "deliver", read)
    carrier._fetch_news()
    assert exchange.read == ["news 0", "news 1", "news 2"]
