"""Solver of LQ problems: the kernels of the C library serve every engine."""

from trajopt.lq.compiled_lq import CompiledLQ as LQSolver, shared_lq as NumpyLQ

__all__ = ["LQSolver", "NumpyLQ"]
