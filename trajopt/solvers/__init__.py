"""Solvers by name, and their options."""
