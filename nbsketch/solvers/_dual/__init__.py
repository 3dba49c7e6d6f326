"""Scalar losses on all rows of a kernel matrix, by products with it."""
