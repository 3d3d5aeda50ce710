"""Experiments beyond the papers: comparisons of solvers, derivative methods, engines, and other libraries (peers)."""
