"""Robots from URDF: reading, checks and error messages."""
