"""Configuration files: schema, loading, and the problems that they describe."""
