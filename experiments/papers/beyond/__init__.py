"""Beyond the papers: solvers, derivatives and engines against each other, and the peers."""
