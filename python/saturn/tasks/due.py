"""Due times and durations, as people say them: `18:00`, `2026-11-28 09:00`, `+3h`, `1h30m`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import TypeAlias

from saturn.errors import InvalidInput

#: A time as `--due` takes it, a duration from now on, or a time (of this machine's zone if it has
#: no other).
Due: TypeAlias = str | timedelta | datetime

_UNITS = {"d": 86400, "h": 3600, "m": 60, "min": 60, "s": 1}
_PART = r"(\d+(?:\.\d+)?) ?(d|h|min|m|s)"
_DURATION = re.compile(rf"{_PART}(?: ?{_PART})*")
_CLOCK = re.compile(r"(\d{1,2}):(\d{2})")
_EXPECTED = "expected a time such as 18:00 or 2026-11-28 09:00, or a duration such as +3h or +1h30m"


def seconds_until(due: Due, now: datetime | None = None) -> float:
    """Seconds from `now` (by default the present) to a due time.

    A time of day that has passed means tomorrow. Raises `InvalidInput` for text that is no due
    time, and for a time that has passed.
    """
    now = datetime.now().astimezone() if now is None else now
    if isinstance(due, str):
        due = _read(due.strip(), now)
    if isinstance(due, datetime):
        due = (due.astimezone() if due.tzinfo is None else due) - now
    if not isinstance(due, timedelta):
        raise InvalidInput(f"due is a {type(due).__name__}; {_EXPECTED}")
    seconds = due.total_seconds()
    if seconds <= 0:
        raise InvalidInput("the due time has passed; expected a time that is still to come")
    return seconds


def seconds_of(duration: str) -> float:
    """Seconds of a duration such as `2h` or `1h30m`; raises `InvalidInput` for other text."""
    text = duration.strip()
    if not _DURATION.fullmatch(text):
        raise InvalidInput(f"`{text}` is no duration; expected one such as 2h, 45m or 1h30m")
    return _seconds(text)


def _seconds(duration: str) -> float:
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(_PART, duration))


def _read(text: str, now: datetime) -> datetime | timedelta:
    if text.startswith("+") and _DURATION.fullmatch(text[1:].lstrip(" ")):
        return timedelta(seconds=_seconds(text))
    try:
        if of_day := _CLOCK.fullmatch(text):
            hour, minute = map(int, of_day.groups())
            naive = now.replace(tzinfo=None, hour=hour, minute=minute, second=0, microsecond=0)
            due = naive.astimezone(now.tzinfo)
            return due if due > now else (naive + timedelta(days=1)).astimezone(now.tzinfo)
        due = datetime.fromisoformat(text)
    except ValueError:
        raise InvalidInput(f"`{text}` is no due time; {_EXPECTED}") from None
    return due
