"""C sources of a system's dynamics and its derivatives, for every derivative method."""
