"""C99 for a controller without Python."""
