"""Sparse nonlinear programs, IPOPT, and how their ends are told."""
