"""Recursions over the kinematic tree: step functions, index sets, and drivers."""
