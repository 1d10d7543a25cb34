"""How a rank's kernels compute: float32 in full or as TF32, in a fixed order or in any order.

Both are torch's settings for the whole process. A rank makes them once, before its task's model is
built; settings that `get_model` makes come later and count. torch's own defaults are not kept: they
let cuDNN's convolutions round to TF32 (10 bits of a product). The same task would then train
differently on another GPU, by more than a change of technique may cost.
"""

from __future__ import annotations

import os

import torch

#: Two buffers of 16 MiB. Without them cuBLAS adds in any order (its manual, "Results
#: reproducibility"). cuBLAS reads the variable when a process first uses it.
_CUBLAS_WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def set_up(*, deterministic: bool, tf32: bool) -> None:
    """Set how this process computes.

    With `deterministic`, an operation without a deterministic kernel raises `RuntimeError`.
    """
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cudnn.allow_tf32 = tf32
    if deterministic:
        os.environ.setdefault(*_CUBLAS_WORKSPACE)
        torch.backends.cudnn.benchmark = False
        torch.use_deterministic_algorithms(True)
