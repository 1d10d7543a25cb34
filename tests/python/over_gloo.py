"""Preloaded where ranks share a GPU: NCCL refuses that, and gloo goes by way of the host."""

from __future__ import annotations

import torch
import torch.distributed as dist

_default = dist.get_default_backend_for_device


def _backend(device: str | torch.device) -> str:
    return "gloo" if torch.device(device).type == "cuda" else _default(device)


dist.get_default_backend_for_device = _backend
