"""`tensor` and `tensor+fsdp`, by the import path that journals hold: `technique`, and its parts."""

from __future__ import annotations

from saturn.techniques.tensor.technique import TensorFsdp, TensorParallel

__all__ = ["TensorFsdp", "TensorParallel"]
