"""Stages as compiled libraries: their functions, their compilation, and substitutes until they are compiled."""
