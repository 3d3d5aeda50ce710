"""Pendulums, carts, and a four-bar linkage."""
