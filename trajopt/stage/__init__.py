"""The evaluation of stages that every solver uses, in NumPy and compiled."""
