"""Simulated plants: dynamics of this project, and MuJoCo."""
