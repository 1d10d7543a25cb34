"""One step of a task's training: what belongs to the task, the same under every technique.

`stepper` puts the other modules together; both training and trials take their steps by it. Nothing
here knows of checkpoints, reports or the runtime.
"""
