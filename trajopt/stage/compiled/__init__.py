"""Stages as compiled libraries: what is called, when it is built, and what serves until then."""
