"""Constrained points and frames of a tree, and constrained motion with its forces."""
