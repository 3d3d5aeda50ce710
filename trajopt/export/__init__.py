"""Export of controllers to C99 without Python."""
