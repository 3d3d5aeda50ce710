"""Published algorithms that ours are measured against."""
