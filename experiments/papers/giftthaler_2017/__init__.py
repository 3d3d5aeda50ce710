"""M. Giftthaler et al., Advanced Robotics 31, 2017: algorithmic differentiation of rigid-body dynamics."""
