"""Checkpoints: what is saved of training, how it becomes durable, and how it is read again.

`checkpoints` is for managed tasks, `black_box_state` for what a black-box technique saves;
`manifest` says which directories count, for both.
"""
