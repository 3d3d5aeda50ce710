"""Newton's method on trajectories whose states are all variables."""
