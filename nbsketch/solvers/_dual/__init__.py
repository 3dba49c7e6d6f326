"""Scalar losses on all rows of a kernel matrix, using only products with it."""
