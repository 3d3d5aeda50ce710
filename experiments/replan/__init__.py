"""Replanning runs from configurations, and their replays."""
