"""Direct multiple shooting: an optimal-control problem as a sparse nonlinear program."""
