"""What a solve returns and reports: status, records, solution files, the console table."""
