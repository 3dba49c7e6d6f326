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

# Rows of a block, and rows whose left-out residuals choose tau.
_BLOCK, _VALIDATION = 4096, 4000
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
        for part in _parts(len(rows)):
            out[part] = evaluate(form, rows[part], self.landmarks) @ self.coef
        return out + self.intercept


class _Moments(NamedTuple):
    """Weighted sums over some rows: of B^T B, of B, and of ones."""

    gram: NDArray
    sums: NDArray
    weight: float

    def plus(self, other: _Moments, sign: float = 1.0) -> _Moments:
        """Return the sums over both sets of rows or, with sign -1, their difference."""
        return _Moments(
            self.gram + sign * other.gram,
            self.sums + sign * other.sums,
            self.weight + sign * other.weight,
        )


class _Spectrum(NamedTuple):
    """The centered B^T W B of some rows in the basis of C: values, map, mean of B."""

    values: NDArray
    map: NDArray  # from eigenvectors to landmarks, (s, s)
    mean: NDArray

    @classmethod
    def of(cls, moments: _Moments, root: NDArray) -> _Spectrum:
        """Return the decomposition; `root` is L^-1 for C = L L^T."""
        mean = moments.sums / moments.weight
        gram = moments.gram - moments.weight * np.outer(mean, mean)
        values, vectors = eigh(root @ gram @ root.T)
        return cls(np.maximum(values, 0), root.T @ vectors, mean)


class Ridge:
    """The moments of rows and landmarks, from which any target is fitted.

    Parameters
    ----------
    form : CompiledForm
        Kernel with its length scales.
    rows : ndarray of shape (n, p)
        Rows.
    weights : ndarray of shape (n,) or None
        Weights of mean one. None: ones.
    size : int
        Number of landmarks, drawn at random.
    rng : Generator
        Random state.
    labels : ndarray of int of shape (n,), default=None
        Blocks of rows that are left out together; -1: never. None: each row by itself.

    Attributes
    ----------
    validation : ndarray of int of shape (m,)
        Rows, drawn at random, whose left-out residuals choose the penalty.
    """

    def __init__(
        self,
        form: CompiledForm,
        rows: NDArray,
        weights: NDArray | None,
        size: int,
        rng: np.random.Generator,
        labels: NDArray | None = None,
    ) -> None:
        n = len(rows)
        self._form, self._rows = form, rows
        self._weights = np.ones(n) if weights is None else weights
        self.landmarks = rows[np.sort(rng.choice(n, min(size, n), replace=False))]
        self.validation = np.sort(rng.choice(n, min(n, _VALIDATION), replace=False))
        C = evaluate(form, self.landmarks, self.landmarks).astype(np.float64)
        C[np.diag_indices(len(C))] += _JITTER * np.sqrt(len(C))
        root = np.linalg.inv(scipy.linalg.cholesky(C, lower=True))
        every = np.arange(n)
        self._blocks = [] if labels is None else _blocks(labels)
        left_out = [self._moments(block) for block in self._blocks]
        rest = np.setdiff1d(every, np.concatenate([*self._blocks, every[:0]]))
        total = self._moments(rest)
        for part in left_out:
            total = total.plus(part)
        self._spectrum = _Spectrum.of(total, root)
        self._without = [_Spectrum.of(total.plus(m, -1.0), root) for m in left_out]

    def fit(self, Y: NDArray) -> tuple[Base, NDArray]:
        """Fit targets (n, d) with the tau of least left-out error.

        Returns
        -------
        base : Base
            The fitted model.
        residual : ndarray of shape (m, d)
            Left-out residuals of the validation rows; NaN if none is left out.
        """
        every = np.arange(len(Y))
        cross, y_mean = self._cross(self._spectrum, Y, every)
        path = self._block_path(Y) if self._blocks else self._path(Y - y_mean, cross)
        w = self._weights[self.validation]
        known = np.isfinite(path[0]).all(axis=1)
        errors = [w[known] @ np.square(e[known]).sum(axis=1) for e in path]
        best = int(np.argmin(errors))
        spectrum = self._spectrum
        shrunk = cross / (spectrum.values + _TAUS[best])[:, None]
        coef = spectrum.map @ shrunk
        base = Base(self.landmarks, coef, y_mean - spectrum.mean @ coef)
        return base, path[best]

    def _moments(self, index: NDArray) -> _Moments:
        s = len(self.landmarks)
        gram, total = np.zeros((s, s)), np.zeros(s)
        for part in _parts(len(index)):
            w = np.sqrt(self._weights[index[part]])
            B = self._values(index[part]) * w[:, None]
            gram += B.T @ B  # of one array: half the work
            total += w @ B
        return _Moments(gram, total, self._weights[index].sum())

    def _cross(
        self, spectrum: _Spectrum, Y: NDArray, index: NDArray
    ) -> tuple[NDArray, NDArray]:
        """Return the products of some centered rows with targets, and their mean."""
        w = self._weights[index]
        y_mean = w @ Y[index] / w.sum()
        cross = np.zeros((len(self.landmarks), Y.shape[1]))
        for part in _parts(len(index)):
            some = index[part]
            # The weighted targets have mean zero, so B needs no centering.
            cross += self._values(some).T @ (w[part, None] * (Y[some] - y_mean))
        return spectrum.map.T @ cross, y_mean

    def _path(self, Y: NDArray, cross: NDArray) -> list[NDArray]:
        """Return the left-out residuals (m, d) for each tau; Y is centered."""
        spectrum, w = self._spectrum, self._weights[self.validation]
        Q = (self._values(self.validation) - spectrum.mean) @ spectrum.map
        squares, path = np.square(Q), []
        for tau in _TAUS:
            shrink = 1 / (spectrum.values + tau)
            leverage = w * (squares @ shrink + 1 / self._weights.sum())
            freedom = np.maximum(1 - leverage, _LEAST_FREEDOM)
            residual = Y[self.validation] - Q @ (shrink[:, None] * cross)
            path.append(residual / freedom[:, None])
        return path

    def _block_path(self, Y: NDArray) -> list[NDArray]:
        """Return the residuals of refits without the block of each row."""
        path = [np.full((len(self.validation), Y.shape[1]), np.nan) for _ in _TAUS]
        for block, spectrum in zip(self._blocks, self._without, strict=True):
            place = np.flatnonzero(np.isin(self.validation, block))
            mine = self.validation[place]
            rest = np.setdiff1d(np.arange(len(Y)), block)
            cross, y_mean = self._cross(spectrum, Y, rest)
            Q = (self._values(mine) - spectrum.mean) @ spectrum.map
            for residual, tau in zip(path, _TAUS, strict=True):
                fitted = Q @ (cross / (spectrum.values + tau)[:, None])
                residual[place] = Y[mine] - y_mean - fitted
        return path

    def _values(self, part: NDArray) -> NDArray:
        return evaluate(self._form, self._rows[part], self.landmarks)


def _blocks(labels: NDArray) -> list[NDArray]:
    """Return the rows of each block that is left out and leaves rows to fit to."""
    found = [np.flatnonzero(labels == k) for k in np.unique(labels[labels >= 0])]
    return [block for block in found if len(block) < len(labels)]


def _parts(n: int) -> Iterator[slice]:
    return (slice(start, start + _BLOCK) for start in range(0, n, _BLOCK))
