"""SLQ, GNMS, FDDP and DDP: one loop of expansion, Riccati sweep and rollout."""
