"""The threads that carry letters: whose silence is counted."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from saturn.cluster import carrier as carrier_module
from saturn.cluster.carrier import Carrier


class Call:
    """A call of an actor's, or what makes one."""

    def options(self, **_: Any) -> Call:
        return self

    def remote(self, *_: Any) -> Call:
        return Call()


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
    monkeypatch.setattr(carrier, "_deliver", lambda *_: end("delivered"))
    monkeypatch.setattr(carrier, "_lose", lambda *_: end("lost"))
    carrier._fetch_news()
    assert happened == told
