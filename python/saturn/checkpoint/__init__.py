"""Checkpoints: what is saved of training, how it becomes durable, and how it is read again.

`checkpoints` is for managed tasks, `black_box_state` for the saves of a black-box technique.
`manifest` says for both which directories are valid. Nothing here decides when to save.
"""
