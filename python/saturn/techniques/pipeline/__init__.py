"""The technique `pipeline`, by the import path that journals hold: `technique`, and its parts."""

from __future__ import annotations

from saturn.techniques.pipeline.technique import Pipeline

__all__ = ["Pipeline"]
