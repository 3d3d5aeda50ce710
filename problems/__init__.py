"""Trajectory optimization problems; each module builds an OCP and an initial guess from settings."""
