"""Preconditioned conjugate gradients, for blocks of right-hand sides and for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Inverse = Callable[[NDArray], NDArray]


class ConjugateGradients:
    """Directions and steps for a block of columns; products are left to the caller.

    Columns have steps of their own and can be dropped one by one. The preconditioner
    may change between steps (Polak and Ribiere), as rounding in float32 makes it.

    Parameters
    ----------
    R : ndarray of shape (n, k)
        Residuals of the start.
    precondition : callable
        Called as ``precondition(R, columns)``; returns the preconditioned residuals.
    columns : ndarray of shape (k,), optional
        Numbers of the columns, handed to `precondition`. Default: 0 to k - 1.

    Attributes
    ----------
    R, D : ndarray of shape (n, k)
        Residuals and directions of the columns that are left.
    slope : ndarray of shape (k,)
        Squared norms of the residuals in the metric of the preconditioner.
    """

    def __init__(
        self,
        R: NDArray,
        precondition: Callable[[NDArray, NDArray], NDArray],
        columns: NDArray | None = None,
    ) -> None:
        self.R, self._precondition = R, precondition
        self.columns = np.arange(R.shape[1]) if columns is None else columns
        self.D, self.slope = R, np.zeros(R.shape[1])
        self._before: NDArray | None = None
        self._Z: NDArray | None = None

    @property
    def Z(self) -> NDArray:
        """The preconditioned residuals, computed when they are first asked for."""
        if self._Z is None:
            self._Z = self._precondition(self.R, self.columns)
        return self._Z

    def turn(self) -> None:
        """Set the next directions."""
        slope, D = _dots(self.R, self.Z), self.Z
        if self._before is not None:
            change = slope - _dots(self._before, self.Z)
            D = self.Z + np.maximum(change / self.slope, 0) * self.D
        self.D, self.slope = D, slope

    def step(self, product: NDArray) -> NDArray:
        """Move the residuals, given H D; return the step lengths of the solution.

        A length is 0 if no curvature is left at this precision.
        """
        curvature = _dots(self.D, product)
        sound = (self.slope > 0) & (curvature > 0)
        lengths = np.zeros(len(sound))
        np.divide(self.slope, curvature, out=lengths, where=sound)
        lengths[~np.isfinite(lengths)] = 0.0
        self._before, self._Z = self.R, None
        self.R = self.R - lengths * product
        return lengths

    def keep(self, mask: NDArray) -> None:
        """Drop the other columns."""
        if mask.all():
            return
        self.columns, self.slope = self.columns[mask], self.slope[mask]
        self.R, self.D = self.R[:, mask], self.D[:, mask]
        self._before = None if self._before is None else self._before[:, mask]
        self._Z = None if self._Z is None else self._Z[:, mask]


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
        Right side.
    tol : float
        Stop when the preconditioned norm of the residual is this share of the first.
    max_products : int
        Largest number of products.

    Returns
    -------
    x : ndarray of shape (p,)
        The solution.
    move : ndarray
        Change of the predictions along x; 0.0 if x is zero.
    count : int
        Number of products.
    """
    x, count = np.zeros_like(right), 0
    move: Any = 0.0
    steps = ConjugateGradients(right[:, None], lambda R, _: inverse(R[:, 0])[:, None])
    steps.turn()
    tolerance = tol**2 * steps.slope[0]
    while steps.slope[0] > tolerance and count < max_products:
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
