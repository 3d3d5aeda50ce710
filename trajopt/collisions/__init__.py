"""Collisions of robots: broad phase, distances of true shapes, collision-free configurations."""
