"""Take a rank out of collectives that a failed peer will never join.

On gloo, a lost connection ends the waiting. NCCL's peers stay in their kernel on the device, where
no exception reaches them. So a failing rank leaves a mark, for which a thread on each other rank
looks. That thread aborts its rank's communicators: the kernels end, and the waiting rank goes on. A
communicator that still opens can't be aborted, so the thread looks again until it is open.

This is for trials, whose ranks try other knobs after a failure. In training, the runtime kills the
gang once a rank has reported its failure, so nobody waits.
"""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist

#: Seconds between two looks for a failed peer's mark.
_LOOK_EVERY_S = 0.1
#: What torch says if it can't begin a batch of collectives, since one is open.
_BATCH_IS_OPEN = "already active"
#: Held while groups are aborted. The watching thread and the rank's own thread may both abort at
#: once: torch refuses the second, which with this lock finds nothing open.
_ABORTING = threading.Lock()


class PeerWatch:
    """Watches the peers of one rank, from its making until `end`."""

    def __init__(self, mark: Path) -> None:
        """`mark` is the path of a file that doesn't exist yet, the same on every rank."""
        self._mark = mark
        self._ended = threading.Event()
        #: Whether communicators were aborted here: later failures of this rank are only echoes.
        self.has_lost_peer = False
        self.has_failed = False
        self._thread = threading.Thread(target=self._run, name="saturn-peers", daemon=True)
        self._thread.start()

    @property
    def is_broken(self) -> bool:
        """Whether this rank has left its group, which then can't be closed as usual."""
        return self.has_failed or self.has_lost_peer

    def fail(self) -> None:
        """Tell the peers that this rank won't join the collectives that they wait in."""
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
                # torch refuses while the rank's own thread launches collectives or closes groups.
                # At the next look, that thread has finished, or waits in the group.
                with contextlib.suppress(RuntimeError):
                    if abort_groups():
                        return


def abort_groups() -> bool:
    """Abort every open process group, from any thread. Peers are not told.

    Returns whether there was one. While the first group opens, there is none yet.

    Raises:
        RuntimeError: torch refused, since another thread used the groups meanwhile. A later attempt
            may succeed.
    """
    with _ABORTING:
        if not dist.is_initialized():
            return False
        # All groups together: aborted one after another, each might wait for the next.
        abort = dist.distributed_c10d._abort_process_group
        try:
            abort()
        except RuntimeError as error:
            is_own_thread = threading.current_thread() is threading.main_thread()
            if _BATCH_IS_OPEN in str(error) and not is_own_thread:
                raise  # the batch is the rank's own thread's
            # Aborts are a batch, which torch leaves open if one fails. And this rank may have
            # failed within a batch of collectives. torch would refuse every further attempt.
            _end_batch()
            if not is_own_thread:
                raise
            abort()
        return True


def _end_batch() -> None:
    """End the default group's open batch of collectives."""
    device = torch.accelerator.current_accelerator() or torch.device("cpu")
    with contextlib.suppress(RuntimeError):
        cast(dist.ProcessGroup, dist.group.WORLD)._end_coalescing(device)
