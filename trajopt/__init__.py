"""Optimal-control problems, their expansions, and the solvers."""
