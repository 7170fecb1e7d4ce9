"""Circular buffers: the families of fusions that stream through them, and the matrix of choices."""
