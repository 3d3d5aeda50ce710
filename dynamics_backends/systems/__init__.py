"""Systems xdot = f(x, u), independent of the derivative method."""
