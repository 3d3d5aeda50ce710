"""The shapes that URDF and MJCF files give to links."""
