"""Replanning while a plant moves: loop, horizons, planners, plants, simulated faults, log."""
