"""C source of stages: cost terms, constraints, time steps."""
