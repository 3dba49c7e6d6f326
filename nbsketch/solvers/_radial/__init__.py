"""Losses of a norm: problem, preconditioner and search."""
