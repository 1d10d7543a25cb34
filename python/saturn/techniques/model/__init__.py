"""What several techniques do with a model: find layers, run them again, choose the attention."""
