"""The compiled part: plain data (JSON) in and out. See `saturn.native`, the only user."""

from collections.abc import Callable
from typing import final

__all__ = [
    "Agent",
    "Exchange",
    "Interrupts",
    "__version__",
    "ask",
    "explain",
    "is_driven",
    "judged",
    "outlook",
    "read_profile",
    "report",
    "resume",
    "run",
    "status",
    "status_text",
]

__version__: str

@final
class Interrupts:
    """How often a person asked a run to stop."""

    def __new__(cls) -> Interrupts: ...
    def press(self) -> None:
        """Ask once more: at checkpoints, at once, without waiting for anything."""

@final
class Exchange:
    """The way between a run that this process drives and its agents, by their numbers."""

    def __new__(cls) -> Exchange: ...
    def join(self, agent: int, description: str) -> None:
        """An agent has come; `description` is `Agent.description` of it."""

    def deliver(self, agent: int, letters: list[str]) -> int:
        """Letters of an agent, in their order; letters that came before are skipped.

        Gives how many of the agent's letters were read so far. Raises `saturn.errors.InvalidInput`
        where a letter can't be understood: the agent is to be given up.
        """

    def lose(self, agent: int, reason: str) -> None:
        """An agent or its node is lost: nothing more is heard of it."""

    def note(self, text: str) -> None:
        """A word for the person watching."""

    def orders(self, at_most_s: float) -> list[tuple[int, str]] | None:
        """Letters to carry, in their order, with the agents that they are for.

        As soon as there are some, none after so many seconds, `None` where the run is over.
        """

    def close(self) -> None:
        """The run is over, or never was one."""

@final
class Agent:
    """The agent of the node that this process is on: it holds devices, and starts ranks on them."""

    def __new__(
        cls,
        name: str,
        *,
        devices: int | None,
        python: str,
        python_path: list[str],
        cwd: str,
        run: str,
        interface: str | None,
        open_store: Callable[[], str],
        locks_dir: str | None = None,
    ) -> Agent:
        """Take the devices: so many, or all that are free.

        `interface` is the network interface that other nodes reach, where it is known;
        `open_store` opens a store where ranks of several nodes meet, and returns `host:port`.

        Raises `saturn.errors.InvalidInput` where they can't be had, `saturn.errors.RunFailed`.
        """

    def description(self) -> str:
        """What it holds, as JSON."""

    def take(self, letters: list[str]) -> None:
        """Do what letters say, in their order; letters that were taken before are skipped.

        Raises `saturn.errors.InvalidInput` where it can't go on: then everything has ended.
        """

    def news(self, at_most_s: float, num_read: int) -> list[str]:
        """Letters to the driver, beyond the `num_read` that it has read.

        Returns as soon as there are some, or none after so many seconds. Raises
        `saturn.errors.InvalidInput`, which says why there will be no letters any more.
        """

    def end(self) -> None:
        """End every process."""

def run(
    request: str,
    write: Callable[[str], None] | None = None,
    *,
    is_terminal: bool = False,
    interrupts: Interrupts,
    cluster: Exchange | None = None,
) -> str:
    """Drive a run to its end and return its report as JSON.

    Releases the GIL and needs it for `write` alone. With `cluster`, the run is on the devices of
    the agents that have joined there. `interrupts` stop training; then the report
    says `interrupted`. Raises `saturn.errors.InvalidInput` and `saturn.errors.RunFailed`.
    """

def resume(
    run_dir: str,
    write: Callable[[str], None] | None = None,
    *,
    is_terminal: bool = False,
    interrupts: Interrupts,
    cluster: Exchange | None = None,
    device_memory_bytes: int | None = None,
    allow_other_hardware: bool = False,
    wait: bool = False,
    prepared_s: float = 0.0,
) -> str:
    """Go on with a run that was stopped, drive it to its end and return its report as JSON.

    `device_memory_bytes` is what each device may hold from here on: None for what it could before,
    0 for all that it has; `wait`: for devices that other runs hold; `prepared_s`: seconds that the
    caller has spent on this resume. All else is as of `run`.
    """

def outlook(request: str) -> str:
    """What is known of a request's tasks before they are run: a planning problem, as JSON.

    Nothing is run. Raises `saturn.errors.InvalidInput` and `saturn.errors.RunFailed`.
    """

def is_driven(run_dir: str) -> bool:
    """Whether a process drives the run and takes commands."""

def ask(run_dir: str, line: str) -> str | None:
    """Hand a line of JSON to the process that drives the run, and return its reply.

    A reply to a command comes when the command is in the journal. `None` where no process drives
    the run. Raises `saturn.errors.RunFailed` where the process doesn't answer.
    """

def status(run_dir: str) -> str:
    """Where the run and its tasks stand, as JSON: from the process that drives it, or its journal.

    Raises `saturn.errors.InvalidInput` where there is no run, `saturn.errors.RunFailed`.
    """

def status_text(status: str, width: int) -> str:
    """The JSON of `status` as a table for people, in `width` columns, without colour."""

def explain(run_dir: str, task: str | None = None) -> str:
    """Why a task, or the run, is where it is, as JSON: a reason code and a sentence.

    Raises `saturn.errors.InvalidInput` where there is no such run or task, and
    `saturn.errors.RunFailed`.
    """

def judged(run_dir: str) -> str:
    """What the run's stopper has said so far, in its order, as JSON.

    Raises `saturn.errors.InvalidInput` where there is no run, `saturn.errors.RunFailed`.
    """

def report(run_dir: str) -> str:
    """Write the report of a run anew from its journal, and return it as JSON.

    Raises `saturn.errors.InvalidInput` where there is no run, `saturn.errors.RunFailed`.
    """

def read_profile(text: str) -> str:
    """Check the text of a `profile.json` and return it with all fields spelled out.

    Raises `saturn.errors.InvalidInput`, which names the field and says what would be right.
    """
