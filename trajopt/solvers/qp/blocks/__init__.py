"""Hessians and Jacobians as blocks of stages, and as sparse matrices."""
