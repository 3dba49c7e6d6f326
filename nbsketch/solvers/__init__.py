"""Solvers: plain functions of arrays, each returning what it found and how surely."""
