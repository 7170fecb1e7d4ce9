"""Leaf vocabulary shared by every layer: errors, source locations, dtypes, index expressions."""
