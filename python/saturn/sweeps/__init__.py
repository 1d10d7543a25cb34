"""Sweeps: many tasks from one description, by a file (`sweep`) or by `saturn.grid`.

`search` asks Optuna for values in place of a grid.
"""
