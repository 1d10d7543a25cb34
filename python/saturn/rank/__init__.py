"""What one rank is: its process, its device and the memory of it, its gang, and how it fails.

The ground of everything that runs in a worker. Nothing here knows what a task computes, or by which
technique.
"""
