"""Globalization: merit, filter, regularization, and searches along a step."""
