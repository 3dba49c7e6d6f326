"""Newton's method for sums of losses of one or several terms a row."""
