"""Batches of problems with one structure and different values."""
