"""Shared base of the certified solvers: search and checks."""
