"""A run in a notebook: a table with curves that follows it, and stays when the cell has ended."""
