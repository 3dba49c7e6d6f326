"""Shared base of the certified solvers: certificate, search and checks."""
