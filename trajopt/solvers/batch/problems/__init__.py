"""What the problems of a batch have in common, and the numbers in which they differ."""
