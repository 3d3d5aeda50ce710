"""Studies: thousands of problems that differ in drawn values, solved side by side and kept in one dataset."""
