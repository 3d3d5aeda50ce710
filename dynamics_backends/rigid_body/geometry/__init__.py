"""The shapes of a robot's links: read from its URDF, loaded from mesh files, or fitted to them."""
