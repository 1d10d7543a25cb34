"""The published path `from saturn.core.executors.Technique import BaseTechnique`."""

from saturn.techniques.black_box import BaseTechnique

__all__ = ["BaseTechnique"]
