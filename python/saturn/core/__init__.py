"""Import paths of the published Saturn; everything is defined elsewhere."""
