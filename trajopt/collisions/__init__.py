"""Robots among obstacles: which pairs are near, how far apart their true shapes are, and what is free."""
