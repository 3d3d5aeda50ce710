"""What is optimized: problem, phases, cost terms, constraints, and their expansion."""
