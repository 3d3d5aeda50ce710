"""What is controlled: the project's own dynamics, and MuJoCo."""
