"""What a rank does for a script: starts it, listens to it, and keeps its checkpoint."""
