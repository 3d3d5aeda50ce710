"""Linear-quadratic problems and their Riccati recursions, with and without bounds."""
