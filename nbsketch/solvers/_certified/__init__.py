"""Shared base of the certified solvers: problem, certificate, search and checks."""
