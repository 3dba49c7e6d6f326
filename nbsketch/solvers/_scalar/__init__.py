"""Scalar losses: problem, active rows, Gram matrix and search."""
