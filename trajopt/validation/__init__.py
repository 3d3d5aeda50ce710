"""What can be said about a problem before it is solved."""
