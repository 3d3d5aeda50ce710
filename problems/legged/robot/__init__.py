"""Which robot walks: its legs and feet, how it stands, and for which robot numbers were found."""
