"""Holonomic constraints: their kinds, sets, diagnosis, projection, and the motion that they leave."""
