"""Preconditioned conjugate gradients for the Newton direction."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Inverse = Callable[[NDArray], NDArray]


def conjugate_gradients(
    product: Callable[[NDArray], tuple[NDArray, NDArray]],
    inverse: Inverse,
    right: NDArray,
    accuracy: float,
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
    accuracy : float
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
    x, rest, count = np.zeros_like(right), right, 0
    move: Any = 0.0
    direction = ahead = inverse(rest)
    energy = float(rest @ ahead)
    goal = accuracy**2 * energy
    while energy > goal and count < max_products:
        count += 1
        image, forward = product(direction)
        bend = float(direction @ image)
        if not bend > 0:  # no curvature is left at this precision
            break
        length = energy / bend
        x += length * direction
        forward *= length
        move = forward if count == 1 else np.add(move, forward, out=forward)
        rest = rest - length * image
        ahead = inverse(rest)
        energy, before = float(rest @ ahead), energy
        direction = ahead + energy / before * direction
    return x, move, count
