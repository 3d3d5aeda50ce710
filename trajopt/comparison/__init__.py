"""Comparisons of backends, solvers and Hessians on one problem."""
