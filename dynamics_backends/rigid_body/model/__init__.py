"""What a robot is: its tree, masses, names, coordinates, and models to try."""
