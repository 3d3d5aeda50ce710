"""Readers for the shapes of links in URDF and MJCF files."""
