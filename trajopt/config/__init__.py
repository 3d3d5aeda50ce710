"""Configuration files: their schema, and the problem that they describe."""
