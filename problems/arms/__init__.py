"""Arms: reaching, following contours, lifting."""
