"""The compiled part: plain data (JSON) in and out.

`saturn.native` calls it for the user's face. Ranks use `Namespaces` alone.
"""

from collections.abc import Callable, Mapping
from typing import Any, final

__all__ = [
    "Agent",
    "Exchange",
    "Interrupts",
    "Namespaces",
    "__version__",
    "ask",
    "duration",
    "explain",
    "is_driven",
    "judged",
    "outlook",
    "preview_text",
    "read_profile",
    "report",
    "resume",
    "run",
    "run_agent",
    "run_guest_agent",
    "status",
    "status_text",
]

__version__: str

@final
class Interrupts:
    """Counts how often a person asked a run to stop."""

    def __new__(cls) -> Interrupts: ...
    def press(self) -> None:
        """Count one more request.

        The first stops the run at checkpoints, the second stops it at once, and the third leaves
        without waiting for anything.
        """

@final
class Namespaces:
    """A snapshot of namespaces, which are dictionaries whose keys are names.

    It holds addresses, and counts no references: that would copy memory which a rank shares with
    the warm parent.
    """

    def __new__(cls, spaces: list[dict[str, Any]]) -> Namespaces: ...
    def changed(self) -> list[tuple[int, str | None, int, bool]]:
        """The names that have another object now.

        For each: the number of its namespace, the name (None if it is gone), the address that its
        object had, and whether that was a function or a class.
        """

@final
class Exchange:
    """Hands letters between a run that this process drives and its agents, which have numbers."""

    def __new__(cls) -> Exchange: ...
    def join(self, agent: int, description: str) -> None:
        """Add an agent, with its `Agent.description`."""

    def deliver(self, agent: int, letters: list[str]) -> int:
        """Take letters of an agent, in their order; letters that came before are skipped.

        Returns how many of the agent's letters were read so far. Raises
        `saturn.errors.InvalidInput` if a letter can't be understood; then give up the agent.
        """

    def lose(self, agent: int, reason: str) -> None:
        """Give up an agent that is lost, or whose node is lost."""

    def note(self, text: str) -> None:
        """Show a line to the person who watches the run."""

    def orders(self, at_most_s: float) -> list[tuple[int, str]] | None:
        """The next letters to carry, in order, each with the number of its agent.

        Returns as soon as there are letters, and an empty list after `at_most_s` seconds. Returns
        `None` once the run is over.
        """

    def close(self) -> None:
        """End the exchange: the run is over, or did not begin."""

@final
class Agent:
    """The agent of this process's node: it holds devices, and starts ranks on them."""

    def __new__(
        cls,
        name: str,
        *,
        devices: int | None,
        fewer_will_do: bool,
        python: str,
        python_path: list[str],
        cwd: str,
        run: str,
        interface: str | None,
        open_store: Callable[[], str],
        locks_dir: str | None = None,
    ) -> Agent:
        """Claim `devices` devices of this node; None: all that are free.

        With `fewer_will_do`, devices that other runs hold are left out.

        `interface` is the network interface that other nodes reach, if known. `open_store` opens a
        store where ranks of several nodes meet, and returns its `host:port`.

        Raises `saturn.errors.InvalidInput` if the devices can't be claimed, and
        `saturn.errors.RunFailed`.
        """

    def description(self) -> str:
        """The devices that the agent holds, as JSON."""

    def take(self, letters: list[str]) -> None:
        """Carry out the orders in letters, in order; letters that were taken before are skipped.

        Raises `saturn.errors.InvalidInput` if the agent can't go on; then all its ranks have ended.
        """

    def news(self, at_most_s: float, num_read: int) -> list[str]:
        """The letters to the driver after the first `num_read`, which the driver has read.

        Returns as soon as there are letters, and an empty list after `at_most_s` seconds. Raises
        `saturn.errors.InvalidInput`, with the reason, once no more letters will come.
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

    Releases the GIL, and takes it only to call `write`. With `cluster`, the run uses the devices of
    the agents that have joined. `interrupts` stop training; the report then says `interrupted`.
    Raises `saturn.errors.InvalidInput` and `saturn.errors.RunFailed`.
    """

def run_guest_agent(setup: str, ready: Callable[[], None]) -> bool:
    """Be this person's agent in another person's pool, as `setup` says, until it is not wanted.

    `ready` is called once the pool may connect. False, at once: this person has one there already.
    """

def run_agent(setup: str, ready: Callable[[], None]) -> None:
    """Be the agent of a run's ranks until there is nothing left to do.

    `setup` is JSON. `ready` is called once drivers may connect. Releases the GIL.
    Raises `saturn.errors.InvalidInput` and `saturn.errors.RunFailed`.
    """

def resume(
    run_dir: str,
    write: Callable[[str], None] | None = None,
    *,
    is_terminal: bool = False,
    interrupts: Interrupts,
    cluster: Exchange | None = None,
    device_memory_bytes: int | None = None,
    devices: int | None = None,
    allow_other_hardware: bool = False,
    wait: bool = False,
    share: str | None = None,
    shares: Mapping[str, float] | None = None,
    quotas: Mapping[str, int] | None = None,
    prepared_s: float = 0.0,
) -> str:
    """Continue a run that was stopped, drive it to its end and return its report as JSON.

    `device_memory_bytes` is how much each device may hold from now on; None: as much as before; 0:
    all of its memory. `devices` is how many devices of this machine it has from now on; None: as
    before. `wait` waits for devices that other runs hold. `prepared_s` is the seconds that the
    caller has spent on this resume. The other arguments and the errors are those of `run`.
    """

def outlook(request: str) -> str:
    """The planning problem of a request, as JSON: its tasks, and all that is known of them.

    Runs nothing. Raises `saturn.errors.InvalidInput` and `saturn.errors.RunFailed`.
    """

def is_driven(run_dir: str) -> bool:
    """Whether a process drives the run and takes commands."""

def ask(run_dir: str, line: str) -> str | None:
    """Hand a line of JSON to the process that drives the run, and return its reply.

    The reply to a command comes once the command is in the journal. Returns `None` if no process
    drives the run. Raises `saturn.errors.RunFailed` if the process doesn't answer.
    """

def status(run_dir: str) -> str:
    """The status of a run and its tasks, as JSON, from its driver or else from its journal.

    Raises `saturn.errors.InvalidInput` if there is no run, and `saturn.errors.RunFailed`.
    """

def status_text(status: str, width: int) -> str:
    """The JSON of `status` as a table for people, in `width` columns, without colour."""

def preview_text(preview: str) -> str:
    """The JSON of a preview (the answer to the query `preview`) as lines for people."""

def duration(seconds: float) -> str:
    """Seconds in the units that people read, such as `2 min 31 s`."""

def explain(run_dir: str, task: str | None = None) -> str:
    """Why a task, or the run, is where it is, as JSON: a reason code and a sentence.

    Raises `saturn.errors.InvalidInput` if there is no such run or task, and
    `saturn.errors.RunFailed`.
    """

def judged(run_dir: str) -> str:
    """The decisions of the run's stopper so far, in order, as JSON.

    Raises `saturn.errors.InvalidInput` if there is no run, and `saturn.errors.RunFailed`.
    """

def report(run_dir: str) -> str:
    """Write the report of a run again from its journal, and return it as JSON.

    Raises `saturn.errors.InvalidInput` if there is no run, and `saturn.errors.RunFailed`.
    """

def read_profile(text: str) -> str:
    """Check the text of a `profile.json`, and return it with every field written out.

    Raises `saturn.errors.InvalidInput`, which names the wrong field and what it should hold.
    """
