"""What a rank does for a script: start it, read its reports, and note its checkpoint.

The script trains and saves by itself; nothing here knows its model.
"""
