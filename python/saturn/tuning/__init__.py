"""Runs that are steered by what their tasks report: a stopper's, and a study's of Optuna.

A *tuner* says what is to come of a run's tasks, and may add some. A thread beside the run reads
what tasks report, shows it to the tuner, and hands what that says to the run, whose journal keeps
both. So the tuner of a resumed run knows all that the one before it knew.
"""
