"""Contact: soft laws, ground surfaces, impacts, and contact forces as outputs."""
