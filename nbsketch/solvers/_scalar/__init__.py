"""Scalar losses: problem, active rows, Gram matrix and the two searches."""
