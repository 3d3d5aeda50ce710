"""Trajectory-optimization problems: they return an OCP and an initial guess."""
