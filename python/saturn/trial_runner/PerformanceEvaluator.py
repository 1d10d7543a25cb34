"""The published path `from saturn.trial_runner.PerformanceEvaluator import search`."""

from saturn.runs.run import search

__all__ = ["search"]
