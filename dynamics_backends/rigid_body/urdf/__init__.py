"""Robots from URDF: reading, checking and explaining what is wrong."""
