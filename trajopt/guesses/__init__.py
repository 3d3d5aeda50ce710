"""Initial guesses and warm starts."""
