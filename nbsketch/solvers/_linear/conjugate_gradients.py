"""Preconditioned conjugate gradients, for blocks of right-hand sides and for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nbsketch._machine.blas import eigh
from nbsketch._report.validation import row_weights

Inverse = Callable[[NDArray], NDArray]


# Eigenvalues of an output matrix below this share of the largest count as zero.
_NULL = 1e-12
# Residuals of a singular system grow without bound: stop at this multiple of the first.
_DIVERGED = 1e6


class ConjugateGradients:
    """Directions and steps for a block of columns; the caller computes products.

    Columns have separate steps and can be dropped individually. The preconditioner may
    vary between steps (Polak and Ribiere), for example by rounding in float32.

    Parameters
    ----------
    R : ndarray of shape (n, k)
        Initial residuals.
    precondition : callable
        Called as ``precondition(R, columns)``; returns the preconditioned residuals.
    columns : ndarray of shape (k,), optional
        Numbers of the columns, passed to `precondition`. Default: 0 to k - 1.

    Attributes
    ----------
    R, D : ndarray of shape (n, k)
        Residuals and directions of the remaining columns.
    slope : ndarray of shape (k,)
        Squared norms of the residuals in the metric of the preconditioner.
    """

    def __init__(
        self,
        R: NDArray,
        precondition: Callable[[NDArray, NDArray], NDArray],
        columns: NDArray | None = None,
    ) -> None:
        self.R = R
        self._precondition = precondition
        self.columns = np.arange(R.shape[1]) if columns is None else columns
        self.D = R
        self.slope = np.zeros(R.shape[1])
        self._before: NDArray | None = None
        self._Z: NDArray | None = None

    @property
    def Z(self) -> NDArray:
        """The preconditioned residuals, computed on first access."""
        if self._Z is None:
            self._Z = self._precondition(self.R, self.columns)
        return self._Z

    def turn(self) -> None:
        """Set the next directions."""
        slope = _dots(self.R, self.Z)
        D = self.Z
        if self._before is not None:
            change = slope - _dots(self._before, self.Z)
            D = self.Z + np.maximum(change / self.slope, 0) * self.D
        self.D = D
        self.slope = slope

    def step(self, product: NDArray) -> NDArray:
        """Update the residuals, given H D; return the step lengths of the solution.

        A length is 0 if the curvature is below the precision.
        """
        curvature = _dots(self.D, product)
        sound = (self.slope > 0) & (curvature > 0)
        lengths = np.zeros(len(sound))
        np.divide(self.slope, curvature, out=lengths, where=sound)
        lengths[~np.isfinite(lengths)] = 0.0
        self._before = self.R
        self._Z = None
        self.R = self.R - lengths * product
        return lengths

    def keep(self, mask: NDArray) -> None:
        """Drop the other columns: entries of the last axis of each array."""
        if mask.all():
            return
        for name, value in vars(self).items():
            if isinstance(value, np.ndarray):
                setattr(self, name, value[..., mask])


def conjugate_gradients(
    product: Callable[[NDArray], tuple[NDArray, NDArray]],
    inverse: Inverse,
    right: NDArray,
    tol: float,
    max_products: int,
) -> tuple[NDArray, Any, int]:
    """Solve ``H x = right`` for a positive semi-definite H.

    Parameters
    ----------
    product : callable
        Returns ``H x`` and the change of the predictions along x, a new array.
    inverse : callable
        The preconditioner, an approximate inverse of H.
    right : ndarray of shape (p,)
        Right-hand side.
    tol : float
        Stop when the preconditioned norm of the residual is this share of the first,
        or a million times the first: H is then singular along the right-hand side.
    max_products : int
        Maximum number of products.

    Returns
    -------
    x : ndarray of shape (p,)
        The solution.
    move : ndarray
        Change of the predictions along x; 0.0 if x is zero.
    count : int
        Number of products.
    """
    x = np.zeros_like(right)
    count = 0
    move: Any = 0.0
    steps = ConjugateGradients(right[:, None], lambda R, _: inverse(R[:, 0])[:, None])
    steps.turn()
    tolerance = tol**2 * steps.slope[0]
    largest = _DIVERGED**2 * steps.slope[0]
    while tolerance < steps.slope[0] <= largest and count < max_products:
        count += 1
        image, forward = product(steps.D[:, 0])
        (length,) = steps.step(image[:, None])
        if not length:
            break
        x += length * steps.D[:, 0]
        forward *= length
        move = forward if count == 1 else np.add(move, forward, out=forward)
        steps.turn()
    return x, move, count


def _dots(A: NDArray, B: NDArray) -> NDArray:
    """Return the inner products of columns."""
    return np.einsum("ij,ij->j", A, B)


class SymmetricOperator(Protocol):
    """A symmetric positive semi-definite matrix with products and selected entries."""

    shape: tuple[int, int]
    dtype: np.dtype

    def __matmul__(self, V: NDArray) -> NDArray:
        """Return K V in float64, for V of shape (n, d)."""

    def block(self, index: NDArray) -> NDArray:
        """Return K[index][:, index] in float64."""

    def combine(self, index: NDArray, v: NDArray) -> NDArray:
        """Return K[:, index] @ v in float64, for few columns."""

    def exact(self, index: NDArray, v: NDArray) -> NDArray:
        """Return (K v)[index] without rounding of the kernel values."""

    def take(self, index: NDArray) -> SymmetricOperator:
        """Return the submatrix of some rows and columns as an operator."""


class KernelOperator(SymmetricOperator, Protocol):
    """A kernel matrix, which also has rows: `nbsketch.gram.SymmetricGram` is one."""

    def rows(self, index: NDArray) -> NDArray:
        """Return the rows of an index, of shape (len(index), n)."""

    def diag(self) -> NDArray:
        """Return the diagonal."""


class StoredMatrix:
    """A matrix in memory as a `KernelOperator`."""

    def __init__(self, matrix: Any) -> None:
        self._matrix = np.asarray(matrix)
        self.shape = self._matrix.shape
        self.dtype = self._matrix.dtype

    def __matmul__(self, V: NDArray) -> NDArray:
        return self._matrix @ V

    def rows(self, index: NDArray) -> NDArray:
        """Return the rows of an index."""
        return self._matrix[index]

    def combine(self, index: NDArray, v: NDArray) -> NDArray:
        """Return K[:, index] @ v."""
        return self._matrix[index].T @ v

    def exact(self, index: NDArray, v: NDArray) -> NDArray:
        """Return (K v)[index]."""
        return self._matrix[index] @ v

    def block(self, index: NDArray) -> NDArray:
        """Return K[index][:, index] in float64."""
        if np.array_equal(index, np.arange(len(self._matrix))):
            return self._matrix.astype(np.float64)  # a tenth of the time
        return self._part(index).astype(np.float64, copy=False)

    def take(self, index: NDArray) -> StoredMatrix:
        """Return the submatrix of some rows and columns."""
        return StoredMatrix(self._part(index))

    def _part(self, index: NDArray) -> NDArray:
        return self._matrix.take(index, 0).take(index, 1)  # half the time of np.ix_

    def diag(self) -> NDArray:
        """Return the diagonal."""
        return np.diagonal(self._matrix).astype(np.float64)


def as_operator(K: Any) -> Any:
    """Return an array as a `StoredMatrix`, and an operator unchanged."""
    return StoredMatrix(K) if isinstance(K, np.ndarray) else K


def check_columns(Y: ArrayLike, n: int) -> NDArray:
    """Return targets of shape (n, d) in float64, for a matrix with n rows."""
    Y = np.asarray(Y, dtype=np.float64)
    if len(Y) != n:
        raise ValueError(f"`Y` must have as many rows as K, {n}, got {len(Y)}")
    return Y.reshape(n, -1)


def centered(Y: NDArray, weights: NDArray, is_free: bool) -> tuple[NDArray, NDArray]:
    """Return the means of columns (zero without intercept), and Y minus the means.

    Weights have mean one. Means of numbers far from zero are rounded: a second step
    leaves differences whose means are zero.
    """
    means = np.zeros(Y.shape[1])
    for _ in range(2 * is_free):
        step = weights @ Y / len(weights)
        means = means + step
        Y = Y - step
    return means, Y


def output_basis(output: NDArray | None, n_outputs: int) -> tuple[NDArray, NDArray]:
    """Return eigenvalues and eigenvectors of an output matrix; None: the identity."""
    if output is None:
        return np.ones(n_outputs), np.eye(n_outputs)
    values, vectors = eigh(output)
    return np.where(values > _NULL * values[-1], values, 0.0), vectors


class RotatedOutputs:
    """Targets Y V for M = V D V^T; columns with D = 0 are fitted by constants.

    Attributes
    ----------
    targets : ndarray of shape (n, d')
        The columns of Y V with positive eigenvalues.
    values : ndarray of shape (d',)
        The positive eigenvalues.
    weights : ndarray of shape (n,)
        Nonnegative weights of mean one.
    fit_intercept : bool
        Whether intercepts are fitted.
    """

    def __init__(
        self,
        Y: NDArray,
        output: NDArray | None,
        sample_weight: NDArray | None,
        fit_intercept: bool,
    ) -> None:
        self.weights = row_weights(sample_weight, Y)
        self.fit_intercept = fit_intercept
        values, self._rotation = output_basis(output, Y.shape[1])
        rotated = Y @ self._rotation
        self._used = values > 0
        self.targets = rotated[:, self._used]
        self._unused = rotated[:, ~self._used]
        self.values = values[self._used]

    def rotate(self, coef: NDArray) -> NDArray:
        """Return coefficients of the rotated outputs that are used."""
        return (coef @ self._rotation)[:, self._used]

    def least_shift(self, alphas: Sequence[float] | NDArray) -> float:
        """Return the minimum of n alpha over an eigenvalue, for a preconditioner."""
        return len(self.weights) * float(min(alphas)) / self.values.max(initial=1)

    def restore(
        self, coef: NDArray, intercept: NDArray
    ) -> tuple[NDArray, NDArray, float]:
        """Return coefficients, intercepts and the loss of the unused columns."""
        used = self._used
        A = np.zeros((len(coef), len(used)))
        b = np.zeros(len(used))
        A[:, used] = coef
        b[used] = intercept
        weights = self.weights
        b[~used], errors = centered(self._unused, weights, self.fit_intercept)
        loss = float((weights @ np.square(errors)).sum() / (2 * len(weights)))
        return A @ self._rotation.T, self._rotation @ b, loss


class ColumnGaps(NamedTuple):
    """Objective and gap of each column of coefficients."""

    objective: NDArray  # (d,)
    gap: NDArray  # (d,), from the residual
    noise: NDArray  # (d,), increase of the gap by rounding of kernel values

    @property
    def relative_gap(self) -> NDArray:
        """Return the gap plus noise over the objective; 0 if both are 0."""
        total = self.gap + self.noise
        with np.errstate(divide="ignore"):
            return np.divide(total, self.objective, out=total * 0, where=total > 0)
