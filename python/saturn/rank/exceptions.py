"""What is raised on purpose in a rank: the task's own doing, a technique's refusal, a peer's loss.

Without torch: the face imports the interface of techniques, which has the refusal from here.
"""

from __future__ import annotations


class TaskError(Exception):
    """The task's own doing; the message says which of its functions, and what would be right."""


class DataError(TaskError):
    """The task's loader or dataset has raised, which they do under every technique."""


class NotApplicable(Exception):
    """The technique can't run this task; the message says why, in words."""


class PeerLost(Exception):
    """Another rank of the gang has failed: an echo of its failure, never the cause."""


class BuffersDifferError(NotApplicable):
    """A buffer has come to differ between ranks that share a batch; the message names it."""
