"""Import paths that Saturn's users know; everything is defined elsewhere."""
