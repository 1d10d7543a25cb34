"""Small tools without torch, for all floors. Nothing here knows of tasks or runs."""
