"""How a recursion over the tree is written and run: its steps, the layout of rows, and the drivers."""
