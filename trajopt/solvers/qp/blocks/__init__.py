"""Hessians and Jacobians of QPs as blocks of stages and as sparse matrices."""
