"""What the text of a kernel depends on: the sources, versions and structure that its name counts."""
