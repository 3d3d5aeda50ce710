"""Recursive algorithms on a model: inverse and forward dynamics, mass matrix, kinematics, regressors."""
