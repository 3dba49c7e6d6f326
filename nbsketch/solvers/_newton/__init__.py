"""Newton's method for sums of losses with one or several terms per row."""
