"""Linear algebra shared by the solvers."""
