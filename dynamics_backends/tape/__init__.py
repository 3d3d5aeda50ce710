"""Tapes: traced functions as data, evaluated by an interpreter in the package's C library."""
