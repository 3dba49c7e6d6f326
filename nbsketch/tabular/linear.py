"""The linear member of the stack: ridge regression on the preprocessed columns."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nbsketch.kernels import LinearKernel
from nbsketch.tabular.base import Ridge
from nbsketch.tabular.members import Training

# With more columns a linear fit takes longer than the leaves.
_MOST_COLUMNS = 500


class Linear(NamedTuple):
    """A fitted linear function.

    Attributes
    ----------
    coef : ndarray of shape (p, d)
        Coefficients of the preprocessed columns.
    intercept : ndarray of shape (d,)
        Constants.
    weight : float
        Weight in the stack.
    """

    coef: NDArray
    intercept: NDArray
    weight: float

    def predict(self, rows: NDArray) -> NDArray:
        """Return the values at preprocessed rows (n, p), of shape (n, d)."""
        return rows @ self.coef + self.intercept

    def slopes(self) -> NDArray:
        """Return the norm of the coefficients of each column, (p,)."""
        return np.sqrt(np.square(self.coef).sum(axis=1))


def fit_linear(
    data: Training, inverse: NDArray, validation: NDArray, rng: np.random.Generator
) -> tuple[Linear, NDArray] | None:
    """Fit the linear kernel with inverse length scales (p,), by exact leave-one-out.

    Returns
    -------
    linear : Linear
        The fitted function, of weight 1.
    residual : ndarray of shape (m, d)
        Left-out residuals of the validation rows. None instead of both if there are
        more than 500 columns.
    """
    columns = data.rows.shape[1]
    if columns > _MOST_COLUMNS:
        return None
    scales = inverse / inverse.max()
    form = LinearKernel().compiled_form(columns)
    ridge = Ridge(
        replace(form, scale=form.scale * scales),
        data.rows,
        data.weights,
        np.diag(1 / scales),  # with these landmarks the features are s_j x_j
        rng,
        data.labels,
        validation=validation,
    )
    fitted, residual = ridge.fit(data.Y)
    return Linear(scales[:, None] * fitted.coef, fitted.intercept, 1.0), residual
