"""Replanning while a plant moves: loop, horizons, planners, plants, faults, log."""
