"""An arm from one posture to another among obstacles."""
