"""Joint pinball losses: problem, active rows, Gram matrices and search."""
