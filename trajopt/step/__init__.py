"""Time steps of xdot = f(x, u): integrators, sensitivities, and second derivatives of a step."""
