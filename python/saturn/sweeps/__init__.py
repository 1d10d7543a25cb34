"""Sweeps: many tasks from one description, by a file (`sweep`) or by `saturn.grid`.

With `search`, Optuna chooses the values instead of a grid. Training a sweep is left to
`saturn.runs`.
"""
