"""Runs that are steered by their tasks' reports: by a stopper, or by a study of Optuna.

A *tuner* decides what becomes of a run's tasks, and may add tasks. A thread beside the run reads
the tasks' reports, shows them to the tuner, and sends the tuner's decisions to the run. The run's
journal keeps both. So the tuner of a resumed run knows everything that the earlier one knew.
"""
