"""Derivative checks, comparisons, operation counts."""
