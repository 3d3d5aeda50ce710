"""Legged robots: gaits that are found, and gaits that are prescribed."""
