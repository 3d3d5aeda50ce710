"""Methods as generators: each reads as its paper, decides in Python, and yields requests for what costs time."""
