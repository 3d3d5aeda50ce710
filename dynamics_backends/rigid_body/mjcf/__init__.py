"""Robots from MJCF files, MuJoCo's own format, read by MuJoCo's parser."""
