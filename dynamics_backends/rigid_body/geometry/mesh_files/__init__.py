"""Readers of mesh files, in NumPy: the general one takes a second to load."""
