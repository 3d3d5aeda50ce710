"""Ground contact of feet: friction cones, wrench cones of flat feet, soft ground."""
