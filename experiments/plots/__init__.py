"""Pictures and pages of solutions."""
