"""Recursions over the kinematic tree: their steps, the layout of rows, and the drivers."""
