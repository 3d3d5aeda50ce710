"""The KKT system of a QP, factored sparse or by a Riccati sweep."""
