"""How a rank's kernels compute: float32 in full or as TF32, in a fixed order or in any.

Both are settings of torch's for the whole process, which a rank makes once, before its task's model
is built; what `get_model` sets by itself comes after, and counts. torch's own defaults are not left
to stand: it lets cuDNN's convolutions round to TF32 (10 bits of a product), so that the same task
would train differently on another GPU, and by more than a change of technique may cost.
"""

from __future__ import annotations

import os

import torch

#: Two buffers of 16 MiB, without which cuBLAS adds in any order (its manual, "Results
#: reproducibility"); read when a process first uses cuBLAS.
_CUBLAS_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def set_up(*, deterministic: bool, tf32: bool) -> None:
    """Have this process compute so.

    With `deterministic`, an operation that torch has no such kernel for raises `RuntimeError`.
    """
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    if deterministic:
        os.environ.setdefault(*_CUBLAS_WORKSPACE)
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
