"""Derivative methods for any map."""
