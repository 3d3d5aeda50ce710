"""The compiled engine: Python that writes C.  One knot of the horizon per SIMD lane."""
