"""`saturn.report` and `saturn.should_stop`: how a script reports its progress and hears of a stop.

The module doesn't import torch. If no run of Saturn started the script, its functions have no
effect, and the script runs as before. Only rank 0 reports; every rank may ask.

Ranks must not decide alone when to stop: one would wait for another that has gone on. So rank 0
decides in its report of a step, and writes down the step from which all ranks stop. The others read
that in their report of the next step, which they reach only after a step together with rank 0.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from saturn.scripts.command import REPORT, STOP_FILE

#: The answer to this process's last report; None before the first.
_answered: bool | None = None


def report(
    step: int,
    loss: Any = None,
    *,
    total_steps: int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    **metrics: Any,
) -> bool:
    """Report the script's progress; returns whether it must save and end now.

    Call it on every rank, once a step or every few steps, with increasing steps.

    Args:
        step: how many steps are finished, counted from 1 since the training's beginning, not since
            this process resumed it.
        loss: the loss of this step, a number or a tensor with one.
        total_steps: how many steps there will be, if the task doesn't say `steps=`. If the script
            ends early, the same number as `step`.
        checkpoint: the path of a checkpoint of this step, which must be completely written. The
            script gets this path when it is started again.
        metrics: more numbers, by name.

    Raises:
        TypeError: a metric is no number, or a step is no whole number.
    """
    global _answered
    line: dict[str, Any] = {"step": _whole("step", step)}
    if total_steps is not None:
        line["total_steps"] = _whole("total_steps", total_steps)
    if checkpoint is not None:
        line["checkpoint"] = os.path.abspath(checkpoint)  # noqa: PTH100  (links stay links)
    for name, value in {"loss": loss, **metrics}.items():
        if value is not None:
            line[name] = _number(name, value)
    path = os.environ.get(REPORT)
    if path is None:
        return False
    if os.environ.get("RANK", "0") == "0":
        line["t"] = time.time()
        if (memory := _device_bytes()) is not None:
            line["memory_bytes"] = memory
        # A single write, so that a reader never sees half a line, even with other writers.
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, (json.dumps(line) + "\n").encode())
        finally:
            os.close(descriptor)
    _answered = _is_to_stop_at(line["step"])
    return _answered


def should_stop() -> bool:
    """Whether the script must save and end now.

    The answer is that of the script's last `report`, equal on all ranks. A script of one process
    may ask at any time.
    """
    if _is_alone() or _answered is None:
        return _is_asked()
    return _answered


def _is_to_stop_at(step: int) -> bool:
    if _is_alone():
        return _is_asked()
    stop_file = os.environ.get(STOP_FILE)
    if stop_file is None:
        return False
    agreed = Path(f"{stop_file}.step")
    try:
        return step >= int(agreed.read_text())
    except FileNotFoundError:
        pass
    if os.environ.get("RANK", "0") == "0" and _is_asked():
        scratch = agreed.with_name(f"{agreed.name}.{os.getpid()}")
        scratch.write_text(str(step + 1))
        scratch.replace(agreed)
    return False


def _is_asked() -> bool:
    path = os.environ.get(STOP_FILE)
    return path is not None and Path(path).exists()


def _is_alone() -> bool:
    return os.environ.get("WORLD_SIZE", "1") == "1"


def _whole(name: str, value: Any) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"saturn.report: {name} is {value!r}; it must be a whole number")
    return int(value.__index__())


def _number(name: str, value: Any) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError, RuntimeError):
        raise TypeError(
            f"saturn.report: {name} is a {type(value).__name__}; it must be a number, or a tensor "
            "that holds one"
        ) from None
    return number


def _device_bytes() -> int | None:
    """The most memory that torch has held on this process's GPU; None if it uses none."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return int(torch.cuda.max_memory_reserved())
