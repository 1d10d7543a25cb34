"""`from saturn.trial_runner.PerformanceEvaluator import search`."""

from saturn.run import search

__all__ = ["search"]
