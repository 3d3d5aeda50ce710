"""Actuated multibody systems, free or with coupled joints, and maps of their quantities."""
