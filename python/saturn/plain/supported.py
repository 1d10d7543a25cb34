"""Which versions of torch Saturn is for; `pyproject.toml` says the same to pip.

An environment may hold another one all the same. A run is refused there: what Saturn relies on in
torch is more than its public names, and training must not be wrong unnoticed.
"""

from __future__ import annotations

import os
import re
import sys
from importlib import metadata
from importlib.util import find_spec

from saturn.errors import RunFailed

#: The first version that is supported, and the first that isn't any more.
FIRST_TORCH = (2, 9)
NEXT_TORCH = (2, 16)
#: As pip reads it.
TORCH_REQUIREMENT = "torch>={}.{},<{}.{}".format(*FIRST_TORCH, *NEXT_TORCH)
#: Has runs go on with any version.
ANY_TORCH = "SATURN_ANY_TORCH"


def torch_version() -> str | None:
    """The version of torch in this environment; None where there is none. Imports nothing new."""
    if (loaded := sys.modules.get("torch")) is not None:
        return str(loaded.__version__)
    if find_spec("torch") is None:
        return None
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:  # a build on the path, which was not installed
        import torch

        return str(torch.__version__)


def torch_problem(version: str | None) -> str | None:
    """What is wrong with a version of torch, in one line with what to do; None for nothing."""
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
