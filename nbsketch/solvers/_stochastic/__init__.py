"""Stochastic gradients: problem, step rule and walk."""
