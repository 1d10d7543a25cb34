"""A run: made from tasks, watched and steered while it goes on, and its result.

`run` has the functions that users call; `live` is a run in progress. The engine that decides is in
Rust, behind `saturn.native`: nothing in this folder plans or launches.
"""
