"""Trajectories to start from."""
