r"""The global model: ridge regression on landmarks, the base that leaves correct.

With B = k(X, L) centered by the weighted mean of its rows and C = k(L, L),

.. math:: \min_\beta \sum_i w_i \|y_i - \bar y - B_i \beta\|^2
          + \tau\, \mathrm{tr}(\beta^T C \beta)

is solved from B^T W B, added up over blocks of rows: nothing of size n x s is stored.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import scipy.linalg
from numpy.typing import NDArray

from nbsketch._blas import eigh
from nbsketch.gram import CompiledForm, evaluate

# Rows of a block.
_BLOCK = 4096
# Rows whose left-out residuals choose tau.
VALIDATION = 4000
# Kernel values of a block of predictions.
_VALUES = 1000 * _BLOCK
# Added to the diagonal of C, times sqrt(s).
_JITTER = 1e-8
_TAUS = np.logspace(-5, 3, 17)
# One minus a leverage is at least this.
_LEAST_FREEDOM = 1e-6


class Base(NamedTuple):
    """A fitted ridge on landmarks.

    Attributes
    ----------
    landmarks : ndarray of shape (s, p)
        Landmarks.
    coef : ndarray of shape (s, d)
        Coefficients.
    intercept : ndarray of shape (d,)
        Constants.
    """

    landmarks: NDArray
    coef: NDArray
    intercept: NDArray

    def predict(self, form: CompiledForm, rows: NDArray) -> NDArray:
        """Return the values at rows (n, p), of shape (n, d)."""
        out = np.empty((len(rows), self.coef.shape[1]))
        block = min(max(_VALUES // len(self.landmarks), 1), _BLOCK)
        for part in _parts(len(rows), block):
            out[part] = evaluate(form, rows[part], self.landmarks) @ self.coef
        return out + self.intercept


class _Moments(NamedTuple):
    """Weighted sums over some rows: of B^T B, B^T Y, B, Y and ones."""

    gram: NDArray
    cross: NDArray
    sums: NDArray
    y_sums: NDArray
    weight: float

    def plus(self, other: _Moments, sign: float = 1.0) -> _Moments:
        """Return the sums over both sets of rows or, with sign -1, their difference."""
        return _Moments(
            self.gram + sign * other.gram,
            self.cross + sign * other.cross,
            self.sums + sign * other.sums,
            self.y_sums + sign * other.y_sums,
            self.weight + sign * other.weight,
        )


class _Spectrum(NamedTuple):
    """The centered B^T W B of some rows in the basis of C, and B^T W Y."""

    values: NDArray
    map: NDArray  # from eigenvectors to landmarks, (s, s)
    mean: NDArray  # of B
    cross: NDArray  # in the basis of the eigenvectors, (s, d)
    y_mean: NDArray

    @classmethod
    def of(cls, moments: _Moments, root: NDArray) -> _Spectrum:
        """Return the decomposition; `root` is L^-1 for C = L L^T."""
        mean, y_mean = (s / moments.weight for s in (moments.sums, moments.y_sums))
        gram = moments.gram - moments.weight * np.outer(mean, mean)
        values, vectors = eigh(root @ gram @ root.T)
        back = root.T @ vectors
        cross = back.T @ (moments.cross - np.outer(moments.sums, y_mean))
        return cls(np.maximum(values, 0), back, mean, cross, y_mean)

    def coef(self, tau: float) -> NDArray:
        """Return the coefficients (s, d) of the landmarks."""
        return self.map @ (self.cross / (self.values + tau)[:, None])

    def residuals(self, values: NDArray, Y: NDArray) -> tuple[NDArray, NDArray]:
        """Return coordinates Q of rows, and residuals for each of `_TAUS`, (t, m, d).

        `values` are those of the kernel at these rows and the landmarks.
        """
        Q = (values - self.mean) @ self.map
        shrunk = self.cross[:, None] / (self.values[:, None] + _TAUS)[:, :, None]
        fitted = (Q @ shrunk.reshape(len(shrunk), -1)).reshape(-1, *shrunk.shape[1:])
        return Q, np.moveaxis((Y - self.y_mean)[:, None] - fitted, 1, 0)


class Ridge:
    """Ridge regression on landmarks, which are drawn from the rows.

    Parameters
    ----------
    form : CompiledForm
        Kernel with its length scales.
    rows : ndarray of shape (n, p)
        Rows.
    weights : ndarray of shape (n,) or None
        Weights of mean one. None: ones.
    landmarks : int or ndarray of shape (s, p)
        Landmarks; a number of rows is drawn at random.
    rng : Generator
        Random state.
    labels : ndarray of int of shape (n,), default=None
        Blocks of rows that are left out together; -1: never. None: each row by itself.
    validation : ndarray of int of shape (m,), default=None
        Ascending rows whose left-out residuals choose the penalty. None: 4000 rows.

    Attributes
    ----------
    validation : ndarray of int of shape (m,)
        Rows whose left-out residuals choose the penalty, drawn at random unless given.
    """

    def __init__(
        self,
        form: CompiledForm,
        rows: NDArray,
        weights: NDArray | None,
        landmarks: int | NDArray,
        rng: np.random.Generator,
        labels: NDArray | None = None,
        validation: NDArray | None = None,
    ) -> None:
        n = len(rows)
        self._form, self._rows = form, rows
        self._weights = np.ones(n) if weights is None else weights
        if isinstance(landmarks, int):
            self.landmarks = rows[_drawn(n, landmarks, rng)]
        else:
            self.landmarks = landmarks
        if validation is None:
            validation = _drawn(n, VALIDATION, rng)
        self.validation = validation
        self._blocks = [] if labels is None else _blocks(labels)

    def fit(self, Y: NDArray) -> tuple[Base, NDArray]:
        """Fit targets (n, d) with the tau of least left-out error.

        Returns
        -------
        base : Base
            The fitted model.
        residual : ndarray of shape (m, d)
            Left-out residuals of the validation rows; NaN if none is left out.
        """
        root, every = self._inverse_root(), np.arange(len(Y))
        left_out = [self._moments(block, Y) for block in self._blocks]
        total = self._moments(np.setdiff1d(every, _joined(self._blocks)), Y)
        for part in left_out:
            total = total.plus(part)
        spectrum = _Spectrum.of(total, root)
        if self._blocks:
            without = [_Spectrum.of(total.plus(m, -1.0), root) for m in left_out]
            path = self._block_path(without, Y)
        else:
            path = self._path(spectrum, Y)
        w = self._weights[self.validation]
        known = np.isfinite(path[0]).all(axis=1)
        errors = [w[known] @ np.square(e[known]).sum(axis=1) for e in path]
        best = int(np.argmin(errors))
        coef = spectrum.coef(_TAUS[best])
        base = Base(self.landmarks, coef, spectrum.y_mean - spectrum.mean @ coef)
        return base, path[best]

    def _inverse_root(self) -> NDArray:
        """Return L^-1 for the kernel matrix C = L L^T of the landmarks."""
        C = evaluate(self._form, self.landmarks, self.landmarks).astype(np.float64)
        C[np.diag_indices(len(C))] += _JITTER * np.sqrt(len(C))
        factor = scipy.linalg.cholesky(C, lower=True)
        return scipy.linalg.lapack.dtrtri(factor, lower=1)[0]

    def _moments(self, index: NDArray, Y: NDArray) -> _Moments:
        s, d = len(self.landmarks), Y.shape[1]
        gram, cross, sums = np.zeros((s, s)), np.zeros((s, d)), np.zeros(s)
        for part in _parts(len(index)):
            w = np.sqrt(self._weights[index[part]])
            B = self._values(index[part]) * w[:, None]
            gram += B.T @ B  # of one array: half the work
            cross += B.T @ (w[:, None] * Y[index[part]])
            sums += w @ B
        w = self._weights[index]
        return _Moments(gram, cross, sums, w @ Y[index], w.sum())

    def _path(self, spectrum: _Spectrum, Y: NDArray) -> NDArray:
        """Return the left-out residuals for each tau, (t, m, d)."""
        Q, residual = spectrum.residuals(
            self._values(self.validation), Y[self.validation]
        )
        shrink = 1 / (spectrum.values[:, None] + _TAUS)
        leverage = np.square(Q) @ shrink + 1 / self._weights.sum()
        leverage *= self._weights[self.validation, None]
        freedom = np.maximum(1 - leverage, _LEAST_FREEDOM)
        return residual / freedom.T[:, :, None]

    def _block_path(self, without: list[_Spectrum], Y: NDArray) -> NDArray:
        """Return the residuals of refits without the block of each row, (t, m, d)."""
        path = np.full((len(_TAUS), len(self.validation), Y.shape[1]), np.nan)
        for block, spectrum in zip(self._blocks, without, strict=True):
            place = np.flatnonzero(np.isin(self.validation, block))
            mine = self.validation[place]
            path[:, place] = spectrum.residuals(self._values(mine), Y[mine])[1]
        return path

    def _values(self, part: NDArray) -> NDArray:
        return evaluate(self._form, self._rows[part], self.landmarks)


def _drawn(n: int, count: int, rng: np.random.Generator) -> NDArray:
    """Return at most `count` of n rows, ascending."""
    return np.sort(rng.choice(n, min(count, n), replace=False))


def _blocks(labels: NDArray) -> list[NDArray]:
    """Return the rows of each block that is left out and leaves rows to fit to."""
    found = [np.flatnonzero(labels == k) for k in np.unique(labels[labels >= 0])]
    return [block for block in found if len(block) < len(labels)]


def _joined(blocks: list[NDArray]) -> NDArray:
    return np.concatenate([*blocks, np.arange(0)])


def _parts(n: int, block: int = _BLOCK) -> Iterator[slice]:
    return (slice(start, start + block) for start in range(0, n, block))
