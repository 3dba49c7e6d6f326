"""Losses of norms: problem, preconditioner and search."""
