"""Results of a solve: status, iteration records, solution files, reports, the console table."""
