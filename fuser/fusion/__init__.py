"""The fusion graph: what to compute, with shape rules, index maps and the NumPy reference."""
