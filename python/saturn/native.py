"""The only door to the compiled part, `saturn._core`.

It is imported when first needed, so that workers and the library run without it; tests put a fake
in place of its functions.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Protocol

from saturn.errors import RunFailed


class Interrupts(Protocol):
    """How often a person asked a run to stop; the run looks without the interpreter's lock."""

    def press(self) -> None:
        """Ask once more."""


def interrupts() -> Interrupts:
    """None so far."""
    made: Interrupts = _core().Interrupts()
    return made


class Exchange(Protocol):
    """The way between a run that this process drives and its agents, which have numbers."""

    def join(self, agent: int, description: str) -> None:
        """An agent has come, and says what it holds."""

    def deliver(self, agent: int, letters: list[str]) -> int:
        """Letters of an agent, in their order; gives how many of its letters were read so far.

        Raises where a letter can't be understood.
        """

    def lose(self, agent: int, reason: str) -> None:
        """An agent or its node is lost."""

    def note(self, text: str) -> None:
        """A word for the person watching."""

    def orders(self, at_most_s: float) -> list[tuple[int, str]] | None:
        """Letters to carry, with the agents that they are for; None where the run is over."""

    def close(self) -> None:
        """The run is over, or never was one."""


class Agent(Protocol):
    """The agent of the node that this process is on."""

    def description(self) -> str:
        """What it holds, for `Exchange.join`."""

    def take(self, letters: list[str]) -> None:
        """Do what letters say, in their order; raises where it can't go on."""

    def news(self, at_most_s: float, num_read: int) -> list[str]:
        """Letters to the driver, beyond the `num_read` that it has read.

        Raises where there will be no letters any more.
        """

    def end(self) -> None:
        """End every process."""


def exchange() -> Exchange:
    """One without agents."""
    made: Exchange = _core().Exchange()
    return made


def agent(
    node: str,
    *,
    devices: int,
    python: str,
    python_path: list[str],
    cwd: str,
    run: str,
    interface: str | None,
    open_store: Callable[[], str],
) -> Agent:
    """An agent that holds this machine's devices (see `_core.pyi`)."""
    made: Agent = _core().Agent(
        node,
        devices=devices,
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
    allow_other_hardware: bool,
    wait: bool,
    prepared_s: float,
) -> str:
    """Go on with a run that was stopped, to its end; returns its report as JSON."""
    report: str = _core().resume(
        str(run_dir),
        write,
        is_terminal=is_terminal,
        interrupts=interrupts,
        cluster=cluster,
        device_memory_bytes=device_memory_bytes,
        allow_other_hardware=allow_other_hardware,
        wait=wait,
        prepared_s=prepared_s,
    )
    return report


def outlook(request: str) -> str:
    """What is known of a request's tasks before they are run, as JSON."""
    found: str = _core().outlook(request)
    return found


def is_driven(run_dir: Path) -> bool:
    """Whether a process drives the run and takes commands."""
    driven: bool = _core().is_driven(str(run_dir))
    return driven


def ask(run_dir: Path, line: str) -> str | None:
    """Hand a command to the process that drives the run; its reply, None where there is none."""
    reply: str | None = _core().ask(str(run_dir), line)
    return reply


def status(run_dir: Path) -> str:
    """Where the run stands, as JSON: live, or from its journal."""
    found: str = _core().status(str(run_dir))
    return found


def status_text(status: str, width: int) -> str:
    """The JSON of `status` as a table for people."""
    text: str = _core().status_text(status, width)
    return text


def explain(run_dir: Path, task: str | None) -> str:
    """Why a task, or the run, is where it is, as JSON: live, or from its journal."""
    found: str = _core().explain(str(run_dir), task)
    return found


def judged(run_dir: Path) -> str:
    """What the run's stopper has said so far, in its order, as JSON."""
    found: str = _core().judged(str(run_dir))
    return found


def report(run_dir: Path) -> str:
    """The report of a run, as JSON, from its journal."""
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
