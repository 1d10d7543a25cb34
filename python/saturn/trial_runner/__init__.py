"""Import path of `search`."""
