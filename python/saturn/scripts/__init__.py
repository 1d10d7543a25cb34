"""Training scripts as tasks: the command that starts a script, and the script's reports.

`command` and `reporting` are used inside the script's own process, so they import nothing heavy.
What a rank does with a script is in `saturn.worker.scripts`.
"""
