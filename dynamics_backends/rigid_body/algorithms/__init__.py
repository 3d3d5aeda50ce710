"""Recursive algorithms on a model: inverse and forward dynamics, mass matrix and kinematics."""
