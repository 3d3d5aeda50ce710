"""Decisions that methods share: pure functions and small records."""
