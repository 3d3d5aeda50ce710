"""KKT systems of a QP, solved by a sparse factorization or a Riccati sweep."""
