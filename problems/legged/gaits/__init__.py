"""Gaits: schedules, gait analysis, and walking problems."""
