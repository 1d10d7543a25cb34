"""What Saturn needs in a Python, and which versions of torch; `pyproject.toml` says so to pip.

An environment may still have another version. A run is refused there, because Saturn relies on more
of torch than its public interface, and training must never be silently wrong.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import metadata
from importlib.util import find_spec

from saturn.errors import RunFailed

#: What `import saturn` needs beside Python itself.
PICKLER = "cloudpickle"
#: The first supported version, and the first that is no longer supported.
FIRST_TORCH = (2, 11)
NEXT_TORCH = (2, 16)
#: The requirement in pip's form.
TORCH_REQUIREMENT = "torch>={}.{},<{}.{}".format(*FIRST_TORCH, *NEXT_TORCH)
#: The environment variable that lets runs start with any version.
ANY_TORCH = "SATURN_ANY_TORCH"


def check_packages() -> None:
    """Refuse a Python in which `import saturn` can't work; raises `ModuleNotFoundError`.

    torch is not among these packages: only a run needs it, not a script that reports to one.
    """
    if find_spec(PICKLER) is None:
        raise ModuleNotFoundError(
            f"Saturn needs the package `{PICKLER}`, which {sys.executable} does not have: "
            f"{sys.executable} -m pip install {PICKLER}",
            name=PICKLER,
        )


def torch_version() -> str | None:
    """The version of torch in this environment; None without torch. Avoids importing torch."""
    if (loaded := sys.modules.get("torch")) is not None:
        return str(loaded.__version__)
    if find_spec("torch") is None:
        return None
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:  # a build on the path that was never installed
        import torch

        return str(torch.__version__)


def torch_problem(version: str | None) -> str | None:
    """What is wrong with a version of torch, in one line with the remedy; None if nothing is."""
    install = f"{sys.executable} -m pip install '{TORCH_REQUIREMENT}'"
    if version is None:
        return f"torch is not installed for {sys.executable}: {install}"
    numbers = re.match(r"(\d+)\.(\d+)", version)
    if numbers and FIRST_TORCH <= (int(numbers[1]), int(numbers[2])) < NEXT_TORCH:
        return None
    return (
        f"torch {version} is none that this Saturn supports: {install}; "
        f"or set {ANY_TORCH}=1 to go on with it, untested"
    )


def check_torch() -> None:
    """Refuse an environment without a supported torch; raises `RunFailed`."""
    problem = torch_problem(version := torch_version())
    if problem and (version is None or not os.environ.get(ANY_TORCH)):
        raise RunFailed(problem)
