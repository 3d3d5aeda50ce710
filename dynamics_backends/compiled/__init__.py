"""The compiled engine: Python that writes C.  One knot of the batch per SIMD lane."""
