"""Takes a rank out of the collectives that a failed peer will not come to.

A lost connection ends gloo's waiting. NCCL's peers stay in their kernel, on the device, where no
exception reaches them. So a rank that fails leaves a mark, a thread on each of the others looks for
it, and aborts the communicators there: their kernels end, and whoever waited for them goes on.

For trials, whose ranks outlive a failure to try other knobs. In training the runtime kills the gang
once a rank has said that it fails, and nobody waits.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import torch.distributed as dist

#: Between two looks for a failed peer's mark.
_LOOK_EVERY_S = 0.1
#: Held while groups are aborted. The watching thread and the rank's own may both want it at once:
#: torch refuses the second, which then finds nothing open.
_ABORTING = threading.Lock()


class PeerWatch:
    """Watches the peers of one rank from its making until `end`."""

    def __init__(self, mark: Path) -> None:
        """`mark` is a file that isn't there yet, the same on every rank."""
        self._mark = mark
        self._ended = threading.Event()
        #: Whether the communicators were aborted here: what then fails on this rank is an echo.
        self.has_lost_peer = False
        self.has_failed = False
        self._thread = threading.Thread(target=self._run, name="saturn-peers", daemon=True)
        self._thread.start()

    @property
    def is_broken(self) -> bool:
        """Whether this rank has left its group, which can't be closed as usual then."""
        return self.has_failed or self.has_lost_peer

    def fail(self) -> None:
        """Tell the peers that this rank does not come to the collectives that it has promised."""
        self.has_failed = True
        self._mark.touch()

    def end(self) -> None:
        """Stop watching."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_LOOK_EVERY_S):
            if self.has_failed:
                return
            if self._mark.exists():
                self.has_lost_peer = True
                # torch refuses while the rank itself launches a batch of collectives, or closes
                # its groups: at the next look it has done so, or waits in them.
                with contextlib.suppress(RuntimeError):
                    abort_groups()
                    return


def abort_groups() -> None:
    """Abort every open process group, from any thread. Peers hear nothing of it."""
    with _ABORTING:
        if dist.is_initialized():
            # Of all groups together: aborted one after the other, each might wait for the next.
            dist.distributed_c10d._abort_process_group()
