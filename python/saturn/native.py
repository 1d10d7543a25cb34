"""How the user's face calls the compiled part, `saturn._core`.

It is imported at the first use, so that tasks can be defined without it. Tests replace its
functions by fakes. Nothing here decides anything: each function only calls its counterpart.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Protocol

from saturn.errors import RunFailed


class Interrupts(Protocol):
    """Counts how often the user asked a run to stop; the run reads it without the GIL."""

    def press(self) -> None:
        """Ask once more."""


def interrupts() -> Interrupts:
    """Make a counter at zero."""
    made: Interrupts = _core().Interrupts()
    return made


class Exchange(Protocol):
    """The connection between a run that this process drives and its agents, which have numbers."""

    def join(self, agent: int, description: str) -> None:
        """Tell the run that an agent has come, with the description of its devices."""

    def deliver(self, agent: int, letters: list[str]) -> int:
        """Letters of an agent, in their order; gives how many of its letters were read so far.

        Raises where a letter can't be understood.
        """

    def lose(self, agent: int, reason: str) -> None:
        """Tell the run that an agent or its node is lost."""

    def note(self, text: str) -> None:
        """Show a note to the user."""

    def orders(self, at_most_s: float) -> list[tuple[int, str]] | None:
        """(agent, letter) for each letter to carry; None if the run is over."""

    def close(self) -> None:
        """Note that the run is over, or never began."""


class Agent(Protocol):
    """The agent of this process's node."""

    def description(self) -> str:
        """A description of its devices, for `Exchange.join`."""

    def take(self, letters: list[str]) -> None:
        """Carry out letters, in order; raises if the agent can't go on."""

    def news(self, at_most_s: float, num_read: int) -> list[str]:
        """Letters to the driver, beyond the `num_read` that it has read.

        Raises where there will be no letters any more.
        """

    def end(self) -> None:
        """End every process of the agent."""


def run_agent(setup: str, ready: Callable[[], None]) -> None:
    """Be the agent of a run's ranks, as `setup` says, until there is nothing left to do.

    `ready` is called once drivers may connect. Raises if the agent can't serve.
    """
    _core().run_agent(setup, ready)


def run_guest_agent(setup: str, ready: Callable[[], None]) -> bool:
    """Be this person's agent in another person's pool, as `setup` says, until it is not wanted.

    `ready` is called once the pool may connect. False, at once: this person has one there already.
    """
    ran: bool = _core().run_guest_agent(setup, ready)
    return ran


def exchange() -> Exchange:
    """Make an exchange without agents."""
    made: Exchange = _core().Exchange()
    return made


def agent(
    node: str,
    *,
    devices: int,
    fewer_will_do: bool,
    python: str,
    python_path: list[str],
    cwd: str,
    run: str,
    interface: str | None,
    open_store: Callable[[], str],
) -> Agent:
    """Make an agent that holds this machine's devices (see `_core.pyi`)."""
    made: Agent = _core().Agent(
        node,
        devices=devices,
        fewer_will_do=fewer_will_do,
        python=python,
        python_path=python_path,
        cwd=cwd,
        run=run,
        interface=interface,
        open_store=open_store,
    )
    return made


def run(
    request: str,
    write: Callable[[str], None] | None,
    *,
    is_terminal: bool,
    interrupts: Interrupts,
    cluster: Exchange | None = None,
) -> str:
    """Drive a run to its end; returns its report as JSON (see `_core.pyi`)."""
    report: str = _core().run(
        request, write, is_terminal=is_terminal, interrupts=interrupts, cluster=cluster
    )
    return report


def resume(
    run_dir: Path,
    write: Callable[[str], None] | None,
    *,
    is_terminal: bool,
    interrupts: Interrupts,
    cluster: Exchange | None,
    device_memory_bytes: int | None,
    devices: int | None,
    allow_other_hardware: bool,
    wait: bool,
    share: str | None,
    shares: dict[str, float] | None,
    quotas: dict[str, int] | None,
    prepared_s: float,
) -> str:
    """Continue a stopped run to its end; returns its report as JSON."""
    report: str = _core().resume(
        str(run_dir),
        write,
        is_terminal=is_terminal,
        interrupts=interrupts,
        cluster=cluster,
        device_memory_bytes=device_memory_bytes,
        devices=devices,
        allow_other_hardware=allow_other_hardware,
        wait=wait,
        share=share,
        shares=shares,
        quotas=quotas,
        prepared_s=prepared_s,
    )
    return report


def outlook(request: str) -> str:
    """What is known of a request's tasks before they run, as JSON."""
    found: str = _core().outlook(request)
    return found


def is_driven(run_dir: Path) -> bool:
    """Whether a process drives the run and takes commands."""
    driven: bool = _core().is_driven(str(run_dir))
    return driven


def ask(run_dir: Path, line: str) -> str | None:
    """Send a command to the process that drives the run; its reply, None if there is none."""
    reply: str | None = _core().ask(str(run_dir), line)
    return reply


def status(run_dir: Path) -> str:
    """The run's status as JSON: from its driver if it has one, else from its journal."""
    found: str = _core().status(str(run_dir))
    return found


def status_text(status: str, width: int) -> str:
    """The JSON of `status` as a table for people."""
    text: str = _core().status_text(status, width)
    return text


def preview_text(preview: str) -> str:
    """The JSON of a preview as lines for people."""
    text: str = _core().preview_text(preview)
    return text


def duration(seconds: float) -> str:
    """Seconds in the units that people read, such as `2 min 31 s`."""
    text: str = _core().duration(seconds)
    return text


def explain(run_dir: Path, task: str | None) -> str:
    """Why a task, or the run, is in its state, as JSON: from the driver or the journal."""
    found: str = _core().explain(str(run_dir), task)
    return found


def judged(run_dir: Path) -> str:
    """All decisions of the run's stopper so far, in order, as JSON."""
    found: str = _core().judged(str(run_dir))
    return found


def report(run_dir: Path) -> str:
    """The report of a run, made from its journal, as JSON."""
    found: str = _core().report(str(run_dir))
    return found


def read_profile(text: str) -> str:
    """Check the text of a `profile.json`; returns it with all fields spelled out."""
    profile: str = _core().read_profile(text)
    return profile


def _core() -> ModuleType:
    try:
        from saturn import _core
    except ImportError as error:
        raise RunFailed(
            f"the compiled part of Saturn is not there ({error}); in a checkout, `make setup` "
            "builds it"
        ) from error
    return _core
