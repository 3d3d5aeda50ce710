"""Plants of replanning runs."""
