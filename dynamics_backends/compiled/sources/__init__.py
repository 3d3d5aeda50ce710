"""C of a system's dynamics and of its derivatives, method by method."""
