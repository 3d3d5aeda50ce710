"""Viewer scenes of tasks: the robot's motion with goals, obstacles, feet and contact forces."""
