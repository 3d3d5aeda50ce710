"""Spatial vectors, transforms and inertias, rotations, and joint types."""
