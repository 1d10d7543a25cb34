"""Import path of the black-box technique interface."""
