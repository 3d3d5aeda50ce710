"""The C text of stages: cost terms, constraints, time steps."""
