"""What came out, to look at: one self-contained page with figures, tables and claims, from a sweep or from one run."""
