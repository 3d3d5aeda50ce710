"""Sparse nonlinear programs, IPOPT, and diagnosis of failed solves."""
