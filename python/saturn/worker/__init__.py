"""What a rank runs: from its spec file to its last checkpoint.

`rank` is one rank's life, and `warm` is the process that forks ranks. They put the other modules
together, each of which has one subject. Nothing here decides what runs where: the engine does. The
floors below (`saturn.training`, `saturn.checkpoint`, …) know of no spec and no runtime.
"""
