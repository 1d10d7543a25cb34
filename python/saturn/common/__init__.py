"""Small tools that all floors use. Nothing here knows about tasks or runs."""
