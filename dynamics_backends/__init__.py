"""Rigid-body dynamics, systems, and the ways to differentiate them."""
