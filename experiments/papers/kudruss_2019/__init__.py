"""M. Kudruss, P. Manns, C. Kirches, L-CSS 2019: derivatives for rigid-body dynamics with constraints."""
