"""Rigid-body models and the recursive algorithms on them: what is moved, never how it is optimized."""
