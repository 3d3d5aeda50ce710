"""Number types beside float and complex that every algorithm accepts: dual, Taylor."""
