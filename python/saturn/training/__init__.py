"""One step of a task's training: what belongs to the task, the same under every technique.

`stepper` puts the other files together, and is what both training and trials step through. Nothing
here knows a checkpoint, a report or the runtime.
"""
