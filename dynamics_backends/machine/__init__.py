"""C library of the package: recursions and time steps that serve every robot."""
