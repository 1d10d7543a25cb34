"""Training scripts as tasks: the command that starts a script, and what a script says to Saturn.

`command` and `reporting` are used inside the script's own process, so they import nothing heavy.
What a rank does with a script is in `saturn.worker.scripts`.
"""
