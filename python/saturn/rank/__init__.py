"""What one rank is: its process, its device and memory, its gang, and how it fails.

Everything that runs in a worker is built on this folder. Nothing here knows what a task computes,
or by which technique.
"""
