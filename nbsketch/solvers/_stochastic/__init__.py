"""Stochastic gradients: problem, step rule, rows and searches."""
