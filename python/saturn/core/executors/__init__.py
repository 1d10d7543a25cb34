"""Import path of the black-box technique interface; everything is defined elsewhere."""
