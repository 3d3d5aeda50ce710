"""Holonomic constraints: kinds, sets, diagnosis, projection, and constrained motion."""
