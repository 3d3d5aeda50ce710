"""Many problems of one structure at once."""
