"""Textbook problems: pendulums, carts, and a four-bar linkage."""
