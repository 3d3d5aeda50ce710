"""Sequential quadratic programming on sparse nonlinear programs."""
