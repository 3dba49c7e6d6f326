"""The Gram matrix of the weighted features of a problem, bordered by its intercept."""

import numpy as np
from numpy.typing import NDArray

from nbsketch.solvers._certified.problem import Problem


def gram_of(part: Problem, rows: NDArray | None, exact: bool) -> NDArray:
    """Return the weighted Gram matrix of some rows of a problem, the intercept last.

    Unless `exact`, it is in single precision if the features are.
    """
    weights = part.weights if rows is None else part.weights[rows]
    scale = None if part.uniform else weights
    gram = part.design.gram(rows, scale, exact=exact)
    if not part.fit_intercept:
        return gram
    out = np.empty((len(gram) + 1,) * 2)
    out[:-1, :-1] = gram
    out[:-1, -1] = out[-1, :-1] = part.design.rmv(weights, rows)
    out[-1, -1] = weights.sum()
    return out
