"""Optimal control problem: phases, cost terms, constraints, and their second-order expansion."""
