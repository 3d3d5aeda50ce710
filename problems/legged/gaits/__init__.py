"""Gaits: schedules, what gait a motion is, and the problems of walking."""
