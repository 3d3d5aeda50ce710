"""A. Astudillo et al., MECC 2021: closed forms and algorithmic differentiation for predictive control."""
