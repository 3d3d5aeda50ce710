"""Rigid-body dynamics, dynamical systems, and their derivatives by several methods."""
