"""From xdot = f(x, u) to a time step: integrators, sensitivities, and the curvature of a step."""
