"""Rigid-body models and the recursive algorithms on them, independent of any optimization."""
