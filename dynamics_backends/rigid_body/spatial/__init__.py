"""Spatial vectors, transforms and inertias, rotations, and the motion of a joint."""
