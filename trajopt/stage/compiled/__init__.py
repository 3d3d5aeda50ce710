"""Stages in the package's C library: their functions as tapes, and stages of which only a part is compiled."""
