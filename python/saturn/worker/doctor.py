"""Check the Python side for `saturn doctor`: packages, torch, and whether ranks start.

`python -m saturn.worker.doctor --gpus N` prints one JSON object, `{"saturn": version, "findings":
[{subject, mark, found, advice}]}`; nothing else goes to standard output. The checks do what workers
do: import what a warm parent imports, fork two ranks, and let them sum over gloo. Only then do they
touch the machine's N GPUs. The doctor repairs nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any, NoReturn

from saturn.plain.supported import ANY_TORCH, TORCH_REQUIREMENT, torch_problem, torch_version
from saturn.worker.parent import claim_pipes

#: Saturn's name on PyPI, and the name of another project whose package is also called `saturn`.
DISTRIBUTION, NAMESAKE = "saturn-train", "saturn"
#: Packages that Saturn works with if they are installed.
OPTIONAL = ("transformers", "accelerate", "peft", "trl", "safetensors")
#: How long two ranks may take to connect and exchange data.
_PATIENCE_S = 60.0

Finding = dict[str, str | None]

#: The package itself, which is loaded before any of its parts. Workers don't import it by name.
saturn = sys.modules["saturn"]


def ok(subject: str, found: str) -> Finding:
    """Make a finding: the subject is as it should be."""
    return {"subject": subject, "mark": "ok", "found": found, "advice": None}


def warn(subject: str, found: str, advice: str) -> Finding:
    """Make a finding: there is a problem, but runs work."""
    return {"subject": subject, "mark": "warn", "found": found, "advice": advice}


def bad(subject: str, found: str, advice: str) -> Finding:
    """Make a finding: runs don't work."""
    return {"subject": subject, "mark": "bad", "found": found, "advice": advice}


def examine(num_gpus: int) -> Iterator[Finding]:
    """Make all checks, in order; checks that need torch are skipped if torch doesn't work."""
    yield ok("Python", f"{platform.python_version()}, {sys.executable}")
    yield from _tried("saturn in Python", _package)
    yield from _tried("packages", _packages)
    findings = list(_tried("torch", _torch))
    yield from findings
    if any(finding["mark"] == "bad" for finding in findings):
        return
    yield from _tried("warm parent", _warm_parent)
    yield from _tried("ranks", _ranks)
    if num_gpus > 0:
        yield from _tried("CUDA", lambda: _cuda(num_gpus))


def _tried(subject: str, look: Callable[[], Iterator[Finding]]) -> Iterator[Finding]:
    """The findings of a check; a check that raises gives a finding too."""
    try:
        yield from list(look())
    except Exception as error:  # anything may happen in a broken environment
        words = (str(error).strip().splitlines() or [type(error).__name__])[0]
        yield bad(subject, f"fails: {words}", f"try it: {sys.executable} -m saturn.worker.doctor")


def _package() -> Iterator[Finding]:
    subject = "saturn in Python"
    try:
        from saturn import _core  # noqa: F401
    except ImportError as error:
        advice = f"{sys.executable} -m pip install --force-reinstall {DISTRIBUTION}"
        yield bad(subject, f"the compiled part can't be loaded: {error}", advice)
        return
    yield ok(subject, f"{saturn.__version__}, {Path(__file__).parents[1]}")
    if (other := _version(NAMESAKE)) is not None:
        yield warn(
            subject,
            f"another project, {NAMESAKE} {other}, is installed under the same package name",
            f"{sys.executable} -m pip uninstall {NAMESAKE}, then install {DISTRIBUTION} anew",
        )


def _packages() -> Iterator[Finding]:
    versions = {name: _version(name) for name in ("numpy", "cloudpickle", *OPTIONAL)}
    there = [f"{name} {version}" for name, version in versions.items() if version]
    lacking = [name for name, version in versions.items() if not version]
    found = ", ".join(there) + (f"; not installed: {', '.join(lacking)}" if lacking else "")
    if "numpy" in lacking:
        yield bad("packages", found, f"{sys.executable} -m pip install numpy")
    else:
        yield ok("packages", found)


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _torch() -> Iterator[Finding]:
    version = torch_version()
    problem = torch_problem(version)
    if problem and (version is None or not os.environ.get(ANY_TORCH)):
        found, _, advice = problem.partition(": ")
        yield bad("torch", found, advice)
        return
    began = time.monotonic()
    import torch
    import torch.distributed as dist

    built_for = "CPUs"
    if torch.version.cuda or torch.version.hip:
        built_for = f"CUDA {torch.version.cuda}" if torch.version.cuda else "ROCm"
    found = f"{version} for {built_for}, imported in {time.monotonic() - began:.1f} s"
    if not (dist.is_available() and dist.is_gloo_available()):
        yield bad("torch", f"{found}, built without gloo", "install a torch wheel from PyPI")
    elif problem:
        supported = TORCH_REQUIREMENT.removeprefix("torch")
        yield warn("torch", f"{found}; {ANY_TORCH} is set", f"supported: {supported}")
    else:
        yield ok("torch", found)


def _warm_parent() -> Iterator[Finding]:
    from saturn.worker import rank  # noqa: F401  (everything a rank imports)
    from saturn.worker.warm import import_for_ranks, reason_against_forking

    import_for_ranks()
    if (reason := reason_against_forking()) is not None:
        yield warn(
            "warm parent",
            f"this process {reason}, so each rank takes seconds to start instead of milliseconds",
            "look for a sitecustomize or a .pth file that starts a thread or uses a GPU",
        )
    else:
        yield ok("warm parent", "ranks can be forked from a process that has imported torch")


def _ranks() -> Iterator[Finding]:
    """Fork two ranks, which sum their numbers as the ranks of a gang do."""
    advice = "gloo uses the address of this machine's name: correct /etc/hosts, or set "
    advice += "GLOO_SOCKET_IFNAME=lo"
    with tempfile.TemporaryDirectory(prefix="saturn-doctor-") as scratch:
        began = time.monotonic()
        ranks = [_forked(rank, Path(scratch)) for rank in range(2)]
        codes = _codes(ranks, began + _PATIENCE_S)
        took_s = time.monotonic() - began
        complaints = [path.read_text() for path in Path(scratch).glob("complaint-*")]
    if None in codes:
        yield bad("ranks", f"two processes did not connect within {_PATIENCE_S:.0f} s", advice)
    elif any(codes):
        why = complaints[0] if complaints else f"exit codes {codes}"
        yield bad("ranks", f"two processes could not exchange data: {why}", advice)
    else:
        yield ok("ranks", f"two processes exchanged data, in {took_s:.1f} s")


def _forked(rank: int, scratch: Path) -> int:
    """Fork a rank; returns its process id. Its exit code says whether the sum was right."""
    process = os.fork()
    if process == 0:
        _be_rank(rank, scratch)
    return process


def _be_rank(rank: int, scratch: Path) -> NoReturn:
    code = 1
    try:
        import torch

        from saturn.rank.gang import Gang

        gang = Gang(
            rank=rank, world_size=2, device=torch.device("cpu"), rendezvous=scratch / "rendezvous"
        )
        code = 0 if gang.sum([rank + 1.0]) == [3.0] else 2
        gang.close()
    except BaseException as error:
        words = str(error).strip().splitlines() or [type(error).__name__]
        (scratch / f"complaint-{rank}").write_text(words[0])
    finally:
        os._exit(code)


def _codes(processes: list[int], until: float) -> list[int | None]:
    """The exit codes of processes; None for a process that had to be killed."""
    codes: dict[int, int | None] = {}
    while len(codes) < len(processes):
        is_late = time.monotonic() > until
        for process in processes:
            if process in codes:
                continue
            if is_late:
                os.kill(process, signal.SIGKILL)
            ended, status = os.waitpid(process, 0 if is_late else os.WNOHANG)
            if ended:
                codes[process] = None if is_late else os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    return [codes[process] for process in processes]


def _cuda(num_gpus: int) -> Iterator[Finding]:
    import torch
    import torch.distributed as dist

    if torch.version.cuda is None:
        advice = "install a wheel for CUDA: https://pytorch.org/get-started/locally"
        found = f"this machine has {num_gpus} GPUs, and torch is built without CUDA"
        yield bad("CUDA", found, advice)
        return
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        seen = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if seen < num_gpus:
        why = f": {str(said[0].message).strip().splitlines()[0]}" if said else ""
        advice = "install a driver that is new enough for torch's CUDA, or an older torch"
        yield bad("CUDA", f"torch sees {seen} of {num_gpus} GPUs{why}", advice)
        return
    for index in range(num_gpus):
        with torch.cuda.device(index):
            ones = torch.ones(64, 64, device="cuda")
            if float((ones @ ones).sum()) != 64.0**3:
                yield bad("CUDA", f"GPU {index} computes wrong", "look at this GPU: nvidia-smi -q")
                return
    if not dist.is_nccl_available():
        yield bad("CUDA", "torch is built without NCCL", "install a torch wheel from PyPI")
        return
    numbers = torch.cuda.nccl.version()  # type: ignore[no-untyped-call]
    version = ".".join(map(str, numbers))
    yield ok("CUDA", f"torch computes on {num_gpus} GPUs; NCCL {version}")


def main() -> None:
    """The program `python -m saturn.worker.doctor`."""
    parser = argparse.ArgumentParser(prog="python -m saturn.worker.doctor")
    parser.add_argument("--gpus", type=int, default=0)
    arguments = parser.parse_args()
    _, answer = claim_pipes()
    said: dict[str, Any] = {"saturn": saturn.__version__, "findings": []}
    said["findings"] = list(examine(arguments.gpus))
    with os.fdopen(answer, "w") as out:
        json.dump(said, out)


if __name__ == "__main__":
    main()
