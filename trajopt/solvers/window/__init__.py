"""What methods ask for, and who answers: requests, the driver of a window of problems, answers by kernels and by NumPy."""
