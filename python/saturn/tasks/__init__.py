"""A task as its user describes it: a model, its data, its hyper-parameters, and what it may use.

`task` is the user's interface. `definition`, `evaluation` and `strategy` are plain data that the
workers read too. This folder decides nothing about runs; `saturn.runs` does.
"""
