"""Studies: thousands of problems with drawn values, solved in parallel and stored in one dataset."""
