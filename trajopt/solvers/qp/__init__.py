"""Quadratic programs: interior point, active sets, OSQP, and the linear systems below them."""
