"""Actuated trees of bodies, free or coupled, and maps made from them."""
