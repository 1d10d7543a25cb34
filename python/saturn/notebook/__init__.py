"""Show a run in a notebook: a table with curves that follows it, and stays after the cell ends."""
