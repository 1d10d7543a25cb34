"""Members take turns: each runs its own code on a thread, one at a time, until members meet.

A member meets others at a *point*, by `Member.meet`. It waits there until no member can go on by
itself. Then one point is chosen, and one of the members there computes for all who wait at it.
Every member goes on with its own result. So the order of everything is the same in each run.

Nothing here knows what is computed at a point.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from saturn.data import seeds
from saturn.fused.stream import Stream

#: The point where a pass's gradients are computed. Members there wait until none is elsewhere.
BACKWARD = "backward"

#: Computes the results of all visits at one point.
Compute = Callable[[Sequence["Visit"]], Sequence[Any]]


class FailedTogether(Exception):
    """What members computed together failed, so none of them is to blame; the cause is chained."""


class Abandoned(BaseException):
    """The group was closed while this member was waiting. Only its `finally` blocks still run."""


@dataclass
class Visit:
    """A member that waits at a point."""

    member: Member
    point: Hashable
    given: Any
    compute: Compute
    #: Who is at the point too, if this member is to compute for all.
    together: Sequence[Visit] = ()
    result: Any = None
    error: BaseException | None = None
    #: Whether the error came where no other member was, so it is this member's own.
    is_alone: bool = False


class Member:
    """One member's thread. `meet` is for the member's own code, all else for others'."""

    def __init__(self, name: str, device: torch.device) -> None:
        self.name = name
        self.stream = Stream(device)
        #: What the member's work returned, or raised.
        self.result: Any = None
        self.error: BaseException | None = None
        self.visit: Visit | None = None
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._is_abandoned = False
        self._thread: threading.Thread | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the member's work is over."""
        return self._thread is not None and not self._thread.is_alive()

    def start(self, work: Callable[[], Any]) -> None:
        """Give the member its work, which begins with its first turn."""
        self._thread = threading.Thread(
            target=self._run, args=(work,), name=f"fused {self.name}", daemon=True
        )
        self._thread.start()

    def _run(self, work: Callable[[], Any]) -> None:
        self._go.acquire()
        self.stream.use()
        try:
            if not self._is_abandoned:
                self.result = work()
        except BaseException as error:
            self.error = error
        self._back.release()

    def turn(self) -> None:
        """Let the member run until it waits at a point or its work is over."""
        assert self._thread is not None, "a member starts before its first turn"
        self.visit = None
        self._go.release()
        self._back.acquire()
        if self.visit is None:
            self._thread.join()

    def abandon(self) -> None:
        """End a member's work where it waits."""
        self._is_abandoned = True
        while not self.has_ended:
            self.turn()

    def meet(self, point: Hashable, given: Any, compute: Compute) -> Any:
        """Wait at `point`; returns this member's part of what `compute` makes of all visits."""
        visit = Visit(self, point, given, compute)
        self.stream.keep()
        self.visit = visit
        self._back.release()
        self._go.acquire()
        if self._is_abandoned:
            raise Abandoned
        if visit.together:
            _compute(visit)
        self.stream.use()
        if visit.error is not None and visit.is_alone:
            raise visit.error
        if visit.error is not None:
            raise FailedTogether(
                "what several tasks computed together failed, and none of them is to blame: "
                f"{type(visit.error).__name__}: {visit.error}"
            ) from visit.error
        return visit.result


def _compute(first: Visit) -> None:
    try:
        results = first.compute(first.together)
        for visit, result in zip(first.together, results, strict=True):
            visit.result = result
    except BaseException as error:  # else the others would go on with no result
        for visit in first.together:
            visit.error = error
            visit.is_alone = len(first.together) == 1


class Turns:
    """The members of a group, and whose turn it is."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        #: Whose work is not over, in the order in which they came.
        self.members: list[Member] = []

    def add(self, member: Member) -> None:
        """Let a member that was started take part from the next round on."""
        self.members.append(member)

    def round(self) -> bool:
        """Let each member finish a pass, and go on to where its next pass begins or its work ends.

        Returns whether the work of any member is left.
        """
        with seeds.forked(self._device):
            for member in self.members:
                if member.visit is None:  # it has just come
                    member.turn()
            while together := self._next():
                first, *others = together
                first.together = together
                is_last = first.point == BACKWARD
                first.member.turn()
                for visit in others:
                    visit.member.turn()
                if is_last:
                    break
            self.members = [member for member in self.members if not member.has_ended]
        return bool(self.members)

    def close(self) -> None:
        """End the work of all members, where they wait."""
        with seeds.forked(self._device):
            for member in self.members:
                member.abandon()
        self.members = []

    def _next(self) -> list[Visit]:
        """The visits at the point where most members are; the gradients come last."""
        visits = [member.visit for member in self.members if member.visit is not None]
        inside = [visit for visit in visits if visit.point != BACKWARD]
        if not inside:
            return visits
        counts = Counter(visit.point for visit in inside)
        point = max(counts, key=counts.__getitem__)
        return [visit for visit in inside if visit.point == point]
