"""Validation of problems and solutions."""
