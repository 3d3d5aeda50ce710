"""Shapes of links and of bodies in a scene: read from robot and mesh files, covered by capsules, and distances between them."""
