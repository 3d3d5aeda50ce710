"""Expressions traced from Python, and written as C statements on vectors of lanes."""
