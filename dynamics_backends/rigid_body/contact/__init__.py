"""Points and frames that constrain a tree, and the motion and the forces that follow."""
