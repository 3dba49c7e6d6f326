"""Joint pinball losses: problem, active rows, Gram matrix and search."""
