"""What techniques share about models: find layers, recompute them, choose the attention.

No module here knows a particular technique.
"""
