"""Triangle meshes from files."""
