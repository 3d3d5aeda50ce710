"""Capsules and spheres that cover links."""
