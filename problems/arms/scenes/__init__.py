"""Minimum-time motions of an arm among obstacles."""
