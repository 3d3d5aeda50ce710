"""Batches: many problems of one structure, solved in parallel."""
