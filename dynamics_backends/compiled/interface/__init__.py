"""What the compiled engine offers to those who write kernels of their own: C to stand in them, and libraries made of it."""
