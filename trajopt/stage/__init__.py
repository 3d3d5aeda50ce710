"""Evaluation of stages for all solvers, in NumPy and in compiled code."""
