"""Classify a rank's failures, in the words of the protocol.

Kinds: `task` (the task's own functions, named), `out_of_memory` (of a device), `host_memory` (of
the machine, beside a GPU; a CPU slot has no memory of its own, so there it is `out_of_memory` too),
`no_space` (a disk or quota is full), `peer_lost` (an echo of another rank's failure, never the
cause), `not_applicable` (the technique said so), `error` (anything else). Memory and space are
checked first: running out of them inside a task's function is not that function's fault.
"""

from __future__ import annotations

import contextlib
import errno
import os
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from saturn.plain import durable
from saturn.rank.device_memory import is_limited
from saturn.rank.exceptions import DataError, NotApplicable, PeerLost, TaskError
from saturn.rank.process import accelerator_is_in_use

#: Frames in Saturn's files, except for its techniques, tell a user nothing. They are left out of
#: reports; a rank's log has whole tracebacks.
_SATURN = Path(__file__).parent.parent
_OWN_FILES, _TECHNIQUES = f"{_SATURN}{os.sep}", f"{_SATURN / 'techniques'}{os.sep}"
#: Longest traceback sent, in characters; the beginning and the end are kept.
_MAX_TRACEBACK = 20_000

# Recognised by messages, because a failed CPU allocation and a lost gloo peer are RuntimeErrors.
_DEVICE_MEMORY_TEXTS = (
    "out of memory",  # CUDA's words, and NCCL's for it
    "cublas_status_alloc_failed",
    "cudnn_status_alloc_failed",
)
_HOST_MEMORY_TEXTS = (
    "can't allocate memory",
    "cannot allocate memory",
    "bad_alloc",
    # From a DataLoader's workers: a copy into `/dev/shm` fails, or a page of it can't be had.
    "unable to allocate shared memory",
    "out of shared memory",
    "is killed by signal: killed",  # a DataLoader worker, killed by the kernel for lack of memory
)
#: Messages for a thread that can't start: they mean lack of memory only if a limit is in force.
_NO_THREAD_TEXTS = ("can't start new thread", "resource temporarily unavailable")
_NO_SPACE_TEXTS = ("no space left on device", "disk quota exceeded")
_PEER_LOST_TEXTS = (
    "connection closed by peer",
    "connection reset by peer",
    "broken pipe",
    "application timeout caused pair closure",
    "timed out waiting",
    "remote process exited",
    "connection refused",
    "socket closed",
    "pair closure",
)
#: What NCCL says where it fails by itself: its set-up, its call, or the machine is at fault.
_NCCL_TEXTS = (
    "ncclunhandledcudaerror",
    "ncclsystemerror",
    "ncclinternalerror",
    "ncclinvalidusage",
    "ncclinvalidargument",
)
#: What NCCL adds to these, or says instead, where a peer's process or connection has ended.
_NCCL_PEER_TEXTS = (
    "ncclremoteerror",
    "aborted",
    "connection closed by remote peer",
    "connection reset",
    "connection refused",
    "broken pipe",
    "connection timed out",
)


@dataclass(frozen=True, kw_only=True)
class Failure:
    """One rank's failure, as it is reported."""

    kind: str
    error: str  # one line
    traceback: str

    def message(self) -> dict[str, Any]:
        """The message to the runtime."""
        return {
            "type": "failed",
            "kind": self.kind,
            "error": self.error,
            "traceback": self.traceback,
        }


class Earlier(Exception):
    """A failure that was described before, and that caused the present situation."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.error)
        self.failure = failure


@contextlib.contextmanager
def task_function(name: str) -> Iterator[None]:
    """Run a function of the task in this context; its errors become `TaskError` with `name`."""
    try:
        yield
    except (TaskError, NotApplicable):
        raise
    except (Exception, SystemExit) as error:
        # `sys.exit()` in it, such as that of argparse, would happen under every strategy, too.
        kind = DataError if name.startswith("get_dataloader") else TaskError
        raise kind(f"{name} raised {_one_line(error)}") from error


def describe(error: BaseException, *, device_kind: str = "cpu") -> Failure:
    """Classify `error`, looking at the exceptions that caused it too.

    `device_kind` is the run's. Beside GPUs (`cuda`), memory that runs out in the process says
    nothing about the memory of its device.
    """
    if isinstance(error, Earlier):
        return error.failure
    chain = list(_chain(error))
    if (of_device := _error_behind_nccls(chain)) is not None:
        chain.insert(0, of_device)
    for kind, is_kind in (
        ("out_of_memory", _is_out_of_device_memory),
        ("out_of_memory" if device_kind == "cpu" else "host_memory", _is_out_of_host_memory),
        ("no_space", _is_no_space),
        ("peer_lost", _is_peer_lost),
    ):
        for link in chain:
            if is_kind(link):
                return Failure(kind=kind, error=_one_line(link), traceback=_format(link))
    # The device reports this late, when any function of the task may be running.
    if (asserted := next(filter(_is_failed_assertion, chain), None)) is not None:
        return Failure(
            kind="task",
            error="the model or loss_function indexes out of range on the GPU, such as an "
            "embedding's rows or the classes of a loss (where, is seen with "
            f"CUDA_LAUNCH_BLOCKING=1): {_one_line(asserted)}",
            traceback=_format(asserted),
        )
    for link in chain:
        if isinstance(link, NotApplicable):
            return Failure(kind="not_applicable", error=str(link), traceback="")
        if isinstance(link, TaskError):
            # If the task's function raised, the traceback of its own exception shows the place.
            text = "" if link.__cause__ is None else _format(link.__cause__)
            return Failure(kind="task", error=str(link), traceback=text)
    return Failure(kind="error", error=_one_line(chain[0]), traceback=_format(error))


def is_of_data(error: BaseException) -> bool:
    """Whether the error came from the task's loader or dataset."""
    return any(isinstance(link, DataError) for link in _chain(error))


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        yield link
        link = link.__cause__ or link.__context__


def _error_behind_nccls(chain: Sequence[BaseException]) -> Exception | None:
    """What the device itself says after an error of NCCL's; None if it is usable, or unused.

    Where a kernel has made the device unusable, torch 2.15 says "NCCL Async Error: no error".
    """
    if not any("nccl" in str(link).lower() for link in chain) or not accelerator_is_in_use():
        return None
    try:
        # A query doesn't wait, as other calls would for a peer that is gone.
        torch.accelerator.current_stream().query()
    except torch.AcceleratorError as error:
        return error
    return None


def _is_out_of_device_memory(error: BaseException) -> bool:
    if isinstance(error, torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError | OSError) and _says(error, _DEVICE_MEMORY_TEXTS)


def _is_out_of_host_memory(error: BaseException) -> bool:
    if isinstance(error, MemoryError):
        return True
    if not isinstance(error, RuntimeError | OSError):
        return False
    if isinstance(error, OSError) and error.errno == errno.ENOMEM:
        return True
    return _says(error, (*_HOST_MEMORY_TEXTS, *(_NO_THREAD_TEXTS if is_limited() else ())))


def _says(error: BaseException, texts: tuple[str, ...]) -> bool:
    text = str(error).lower()
    return any(part in text for part in texts)


def _is_no_space(error: BaseException) -> bool:
    if not isinstance(error, RuntimeError | OSError):
        return False
    if isinstance(error, OSError) and durable.is_no_space(error):
        return True
    # Recognised by text: torch's own files, and errors of a DataLoader's worker, which lose errno.
    text = str(error).lower()
    return any(part in text for part in _NO_SPACE_TEXTS)


def _is_peer_lost(error: BaseException) -> bool:
    if isinstance(error, PeerLost | dist.DistNetworkError):
        return True
    text = str(error).lower()
    if isinstance(error, dist.DistBackendError):
        return not _is_of_nccl(text)
    # Only if a group is open: otherwise it may be a loader's own network connection.
    return (
        isinstance(error, RuntimeError)
        and dist.is_initialized()
        and any(part in text for part in _PEER_LOST_TEXTS)
    )


def _is_of_nccl(text: str) -> bool:
    """Whether NCCL itself failed on this rank, as where `/dev/shm` is too small for its buffers.

    `text` is in lower case. torch adds a legend to some codes, which names peers in any case
    ("It can be also caused by unexpected exit of a remote peer"), so "remote peer" says nothing.
    """
    names_own = any(part in text for part in _NCCL_TEXTS)
    return names_own and not any(part in text for part in _NCCL_PEER_TEXTS)


def _is_failed_assertion(error: BaseException) -> bool:
    """Whether a kernel found an index out of range, which the device reports late."""
    # NCCL's next call may be what hears of the failed kernel.
    is_of_device = isinstance(error, torch.AcceleratorError | dist.DistBackendError)
    return is_of_device and "device-side assert" in str(error)


def _one_line(error: BaseException) -> str:
    text = " ".join(str(error).split())
    # A DataLoader worker's exception has its whole traceback as text; the last line is the error.
    if "Traceback (most recent call last)" in text:
        text = str(error).strip().splitlines()[-1].strip()
        return text[:500]
    name = type(error).__name__
    return f"{name}: {text[:500]}" if text else name


def _format(error: BaseException) -> str:
    """The traceback without Saturn's own frames; frames of the task, techniques and torch stay.

    Empty if no frame is left: then the one line says everything.
    """
    summary = traceback.TracebackException.from_exception(error)
    link: traceback.TracebackException | None = summary
    num_frames = 0
    while link is not None:
        kept = [frame for frame in link.stack if not _is_own(frame.filename)]
        link.stack = traceback.StackSummary.from_list(kept)
        num_frames += len(kept)
        link = link.__cause__ or link.__context__
    if num_frames == 0:
        return ""
    text = "".join(summary.format())
    if len(text) > _MAX_TRACEBACK:
        half = _MAX_TRACEBACK // 2
        text = f"{text[:half]}\n… {len(text) - 2 * half} characters left out …\n{text[-half:]}"
    return text


def _is_own(file: str) -> bool:
    return file.startswith(_OWN_FILES) and not file.startswith(_TECHNIQUES)
