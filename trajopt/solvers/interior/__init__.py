"""Primal-dual interior-point method on the stages of an optimal control problem."""
