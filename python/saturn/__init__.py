"""Saturn."""
