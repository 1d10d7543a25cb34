"""Exceptions that a rank raises on purpose: the task's errors, a technique's refusal, a lost peer.

The module doesn't import torch: `import saturn` imports the interface of techniques, which takes
`NotApplicable` from here.
"""

from __future__ import annotations


class TaskError(Exception):
    """An error of the task's own; the message says in which function, and what would be right."""


class DataError(TaskError):
    """An error of the task's loader or dataset, which would occur under every technique."""


class NotApplicable(Exception):
    """The technique can't run this task; the message says why, in words."""


class PeerLost(Exception):
    """Another rank of the gang has failed: an echo of its failure, never the cause."""


class PartsSkippedError(Exception):
    """Parts of the model took no part in a step on some ranks, which no step before it had shown.

    The next attempt can take this into account. `whole_layers` says that layers were skipped whole.
    """

    def __init__(self, message: str, *, whole_layers: bool) -> None:
        super().__init__(message)
        self.whole_layers = whole_layers


class BuffersDifferError(NotApplicable):
    """A buffer differs between ranks that share a batch; the message names the buffer."""
