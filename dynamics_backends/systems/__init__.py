"""Systems: what xdot = f(x, u) is, never how it is differentiated."""
