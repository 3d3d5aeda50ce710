"""Fuzz tests of the command line: damaged and hostile input must end with a message and an exit code."""
