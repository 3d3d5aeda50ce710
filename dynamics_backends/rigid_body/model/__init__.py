"""Robot models: tree, masses, names, coordinates, and sample models."""
