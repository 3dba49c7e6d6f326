"""Linear algebra of several solvers."""
