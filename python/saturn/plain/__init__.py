"""Small tools without torch, for all floors. Nothing here knows about tasks or runs."""
