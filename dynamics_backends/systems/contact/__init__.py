"""Contact: force laws, ground surfaces, systems in soft and in time-stepped contact, impacts, and maps to contact forces."""
