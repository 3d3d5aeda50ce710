"""Contact: soft laws and the ground they act on, impacts, and the forces as outputs."""
