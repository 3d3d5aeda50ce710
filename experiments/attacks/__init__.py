"""Attacks on the command line: damaged and hostile files, each of which must end with a sentence and an exit code."""
