"""S. Singh, R. P. Russell, P. M. Wensing, arXiv 2302.06001: second-order derivatives of rigid-body dynamics."""
