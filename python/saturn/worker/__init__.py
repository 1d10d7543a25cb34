"""What a rank runs: from its spec file to its last checkpoint.

`rank` is one rank's life, `warm` the process that forks ranks; every other file has one subject
that those two put together. Nothing here decides what runs where: that is the engine's. The floors
below (`saturn.training`, `saturn.checkpoint`, ...) know nothing of a spec or of the runtime.
"""
