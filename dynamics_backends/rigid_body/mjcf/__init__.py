"""Robots from MJCF files, the format of MuJoCo, read by MuJoCo's parser."""
