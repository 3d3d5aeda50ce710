"""An iteration as one call of compiled code."""
