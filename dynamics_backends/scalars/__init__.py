"""Number types besides float and complex that every algorithm accepts: dual numbers."""
