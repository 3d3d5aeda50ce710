"""Expressions traced from Python and emitted as C statements on vectors of lanes."""
