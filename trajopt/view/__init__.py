"""Robots and their motions in three dimensions: live in a browser, as a page of its own, as a picture."""
