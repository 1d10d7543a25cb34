"""Import path of `search`, which is defined elsewhere."""
