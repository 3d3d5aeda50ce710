"""What of a task is shown beside its robot: goals, obstacles, feet, forces."""
