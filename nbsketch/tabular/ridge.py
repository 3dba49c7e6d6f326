r"""Ridge regression on landmarks: the base, sizes of errors, the check of the order.

.. math:: \min_{\beta, b} \sum_i w_i \|y_i - b - k(x_i, L) \beta\|^2
          + \tau\, \mathrm{tr}(\beta^T k(L, L) \beta)

is solved like `nbsketch.solvers.ridge_path`, in coordinates with an identity penalty.
Kernel values are computed block by block: no n x s array is stored.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from nbsketch._expansion import projection
from nbsketch._report.fields import array, stored
from nbsketch.gram import CompiledForm, Product, evaluate
from nbsketch.solvers.design import ArrayDesign, Design
from nbsketch.solvers.filters import RidgeFilter
from nbsketch.solvers.left_out import (
    OrderEffect,
    contiguous_blocks,
    held_out_error,
    order_effect,
    without_rows,
)
from nbsketch.solvers.spectrum import RidgePath, moments
from nbsketch.tabular.machine import Member
from nbsketch.tabular.scales import SMOOTH, form_of, kernel_of
from nbsketch.tuning.criterion import blocks_of, left_out_residuals
from nbsketch.tuning.rows import Training

# Maximum number of rows whose leave-one-out residuals choose tau.
VALIDATION = 4000
# Rows and kernel values per block.
_BLOCK = 4096
_VALUES = 4_096_000
# Added to the diagonal of C, times sqrt(s).
_JITTER = 1e-8
_TAUS = np.logspace(-5, 3, 17)
_FILTER = RidgeFilter()
# Landmarks of the ridge regression that checks the order of the rows.
_ORDER_LANDMARKS = 150


@stored
class LandmarkFunction(Member):
    """A function k(x, L) c + b, for the smooth kernel.

    Attributes
    ----------
    scales : ndarray of shape (p,)
        Inverse length scales of the kernel.
    landmarks : ndarray of shape (s, p)
        Landmarks L.
    coef : ndarray of shape (s, d)
        Coefficients c.
    intercept : ndarray of shape (d,)
        Constants b.
    """

    scales: Annotated[NDArray, array("p", positive=True)]
    landmarks: Annotated[NDArray, array("_s p")]
    coef: Annotated[NDArray, array("_s d")]
    intercept: Annotated[NDArray, array("d")]

    @cached_property
    def _product(self) -> Product:
        """The function k(x, L) c."""
        return Product(kernel_of(SMOOTH, self.scales), self.landmarks, self.coef.T)

    def predict(self, rows: NDArray, training: NDArray | None = None) -> NDArray:
        """Return the values (m, d) at preprocessed rows; others are not needed."""
        return self._product(rows).T + self.intercept

    def summary(self) -> tuple[str, str]:
        """Return the entry of a summary."""
        return "base", f"{len(self.landmarks)} landmarks"


class KernelValues(Design):
    """Kernel values at rows and landmarks, computed block by block."""

    def __init__(self, form: CompiledForm, rows: NDArray, landmarks: NDArray) -> None:
        self._arguments = form, rows, landmarks
        self.shape = len(rows), len(landmarks)
        self.dtype = np.dtype(np.float64)

    def blocks(self) -> Iterator[tuple[int, int, NDArray]]:
        """Yield (start, stop, values) of blocks of rows."""
        form, rows, landmarks = self._arguments
        step = min(max(_VALUES // len(landmarks), 1), _BLOCK)
        for start in range(0, len(rows), step):
            stop = min(start + step, len(rows))
            yield start, stop, evaluate(form, rows[start:stop], landmarks)

    def gather(self, rows: NDArray) -> Design:
        """Return the values at some rows, in memory."""
        form, every, landmarks = self._arguments
        return ArrayDesign._trusted(evaluate(form, every[rows], landmarks))


class Ridge:
    """Ridge regression on landmarks.

    Parameters
    ----------
    scales : ndarray of shape (p,)
        Inverse length scales of the smooth kernel.
    data : Training
        Rows, targets, weights and blocks of n rows.
    landmarks : ndarray of int of shape (s,)
        The rows that are landmarks.
    validation : ndarray of int of shape (m,)
        Ascending rows whose leave-one-out residuals choose the penalty.
    """

    def __init__(
        self, scales: NDArray, data: Training, landmarks: NDArray, validation: NDArray
    ) -> None:
        rows, self._Y, weights, labels = data
        n = len(rows)
        self._scales = scales
        form = form_of(SMOOTH, scales)
        self._landmarks = rows[landmarks]
        self._validation = validation
        self._weights = weights / weights.mean()
        values = KernelValues(form, rows, self._landmarks)
        is_small = n <= _BLOCK
        self._design = ArrayDesign._trusted(values.collect()) if is_small else values
        C = evaluate(form, self._landmarks, self._landmarks).astype(np.float64)
        C[np.diag_indices(len(C))] += _JITTER * np.sqrt(len(C))
        self._penalty = C
        self._projection = projection(C)
        self._blocks = None
        if labels is not None:  # other rows remain
            self._blocks = [b for b in blocks_of(labels) if len(b) < n]
        self._alphas = _TAUS / n

    def fit(self) -> tuple[LandmarkFunction, NDArray]:
        """Fit the targets (n, d) with the tau of the lowest leave-one-out error.

        Returns
        -------
        function : LandmarkFunction
            The fitted function.
        residual : ndarray of shape (m, d)
            Leave-one-out residuals of the validation rows; NaN if none is left out.
        """
        path = self._path()
        left_out = self._by_rows if self._blocks is None else self._by_blocks
        alpha, residual = left_out(path)
        solution = path.solve(alpha)
        return LandmarkFunction(self._scales, self._landmarks, *solution), residual

    def order(self) -> OrderEffect:
        """Return the errors of contiguous and of random blocks of rows."""
        path = self._path()
        alpha, _ = self._by_rows(path)
        return order_effect(path, _FILTER, self._design, self._Y, alpha, self._weights)

    def _path(self) -> RidgePath:
        """Return the solutions for all penalties, with kernel values as features."""
        Y = self._Y
        y_mean = self._weights @ Y / len(Y)
        G, cross, mean = moments(self._design, Y - y_mean, self._weights, centered=True)
        P = self._projection
        outputs = np.ones(Y.shape[1])
        values, vectors = np.linalg.eigh(P.T @ G @ P)
        vectors = P @ vectors
        return RidgePath(
            values=np.maximum(values, 0.0),
            vectors=vectors,
            cross=vectors.T @ cross,
            z_mean=mean,
            y_mean=y_mean,
            y_square=(self._weights @ np.square(Y - y_mean)) / len(Y),
            outputs=outputs,
            rotation=np.diag(outputs),
            fit_intercept=True,
            n_samples=len(Y),
        )

    def _by_rows(self, path: RidgePath) -> tuple[float, NDArray]:
        """Return the best alpha, and the leave-one-out residuals."""
        values = self._design.gather(self._validation).collect()
        roots = np.sqrt(self._weights[self._validation, None] / path.n_samples)
        Q = roots * ((values - path.z_mean) @ path.vectors)
        target = roots * (self._Y[self._validation] - path.y_mean)
        gains = 1 / (path.values[:, None] + self._alphas)
        residuals = left_out_residuals(Q, target, gains, path.cross, np.square(roots))
        best = np.square(residuals).sum(axis=(1, 2)).argmin()
        return self._alphas[best], residuals[best] / roots

    def _by_blocks(self, path: RidgePath) -> tuple[float, NDArray]:
        """Return the best alpha, and the residuals of refits without each block."""
        Y = self._Y[self._validation]
        residual = np.full_like(Y, np.nan)
        errors = np.zeros(len(self._alphas))
        fits = []
        for block in self._blocks or []:
            place = np.flatnonzero(np.isin(self._validation, block))
            if not len(place):
                continue
            part = self._validation[place]
            values = self._design.gather(part)
            weights = self._weights[part]
            without = without_rows(
                path, self._design.gather(block), self._Y[block], self._weights[block]
            )
            # The basis is orthonormal for C: the inverse of V^T is C V.
            shift = self._penalty @ (without.z_mean - path.z_mean)
            without = without._replace(z_mean=path.z_mean + shift)
            fits.append((place, values, without))
            errors += weights.sum() * held_out_error(
                without, _FILTER, values, Y[place], self._alphas, weights
            )
        alpha = self._alphas[np.argmin(errors)]
        for place, values, without in fits:
            coef, intercept = without.coefficients(_FILTER, alpha)
            residual[place] = Y[place] - values.mv(coef) - intercept
        return alpha, residual


def table_order(scales: NDArray, data: Training) -> OrderEffect:
    """Compare errors of contiguous and of random blocks of at most 2000 rows.

    The errors are those of a ridge regression on 150 landmarks, fitted to these rows
    with the penalty of the lowest leave-one-out error. Independent rows have the same
    distribution in any order, so the length scales may have been learned from them.
    """
    index = contiguous_blocks(np.arange(len(data.Y))).ravel()
    n = len(index)
    # Random numbers that are not part of the fit.
    landmarks = drawn_rows(n, _ORDER_LANDMARKS, np.random.default_rng(0))
    return Ridge(scales, data.take(index), landmarks, np.arange(n)).order()


def drawn_rows(n: int, count: int, rng: np.random.Generator) -> NDArray:
    """Return at most `count` of n rows, ascending."""
    return np.sort(rng.choice(n, min(count, n), replace=False))
