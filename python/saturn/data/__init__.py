"""A task's data: which samples make up a step, from which seeds, and one rank's slice of them.

The order of samples belongs to the task, never to the plan. Nothing here knows a model.
"""
