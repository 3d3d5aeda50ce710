"""Derivative methods: how any map is differentiated, never what it is."""
