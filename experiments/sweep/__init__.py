"""Studies of configurations: `trajopt sweep`."""
