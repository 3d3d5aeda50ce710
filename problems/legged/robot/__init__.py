"""Legged robots: legs, feet and stance, and scaling of settings between robots."""
