"""Compiled kernels of losses of the Euclidean norm of a residual vector.

The loss phi(|r|) is known by its conjugate, gam |a|^2 / 2 + eps |a| for |a| <= hi. Its
dual point at residual r, smoothed by sigma around the multiplier c, has the direction u
of v = r + sigma c and the length

    x = min(max(|v| - eps, 0) / (gam + sigma), hi).

Its derivative in v is ``across (I - u u^T) + along u u^T``: across = x / |v|, along is
1 / (gam + sigma) strictly between the kinks and 0 beyond. Arrays are (rows, outputs).
"""

from typing import Any

from nbsketch._jit.compiler import REORDER, compiled

# Used as 1 / 0: a dual point without curvature jumps to the bound.
STEEP = 1e300


@compiled(fastmath=REORDER, inline="always")
def _inverse(number: float) -> float:
    return 1.0 / number if number > 0.0 else STEEP


@compiled(fastmath=REORDER, inline="always")
def _young(size: float, x: float, gam: float, eps: float, hi: float) -> float:
    """Return phi(size) + phi*(x) - size x, exactly 0 if x is the slope of phi."""
    top = min(max(size - eps, 0.0) * _inverse(gam), hi)
    return (top - x) * (size - 0.5 * gam * (top + x) - eps)


@compiled(fastmath=REORDER, inline="always")
def _twist(r: Any, a: Any, i: int, size: float, x: float) -> float:
    """Return ``|r| |a| - r . a`` of row i as a sum of squares."""
    if size == 0.0 or x == 0.0:
        return 0.0
    stretch = (size / x) ** 0.5
    total = 0.0
    for j in range(r.shape[1]):
        off = stretch * a[i, j] - r[i, j] / stretch
        total += off * off
    return 0.5 * total


@compiled(fastmath=REORDER)
def radial_point(
    res: Any,
    weights: Any,
    center: Any,
    gam: float,
    eps: float,
    hi: float,
    sigma: float,
    a: Any,
    unit: Any,
    across: Any,
    along: Any,
) -> float:
    """Fill the dual point and its derivative; return the sum of Fenchel-Young terms."""
    inv, young = _inverse(gam + sigma), 0.0
    for i in range(res.shape[0]):
        square, square_res = 0.0, 0.0
        for j in range(res.shape[1]):
            v = res[i, j] + sigma * center[i, j]
            unit[i, j] = v
            square += v * v
            square_res += res[i, j] * res[i, j]
        size, size_res = square**0.5, square_res**0.5
        x = min(max(size - eps, 0.0) * inv, hi)
        over = 1.0 / size if size > 0.0 else 0.0
        for j in range(res.shape[1]):
            unit[i, j] *= over
            a[i, j] = x * unit[i, j]
        along[i] = inv if size >= eps and x < hi else 0.0
        # the limit at a zero residual is a multiple of the identity
        across[i] = x * over if size > 0.0 else along[i]
        young += weights[i] * _young(size_res, x, gam, eps, hi)
        young += weights[i] * _twist(res, a, i, size_res, x)
    return young


@compiled(fastmath=REORDER)
def radial_young(
    res: Any, weights: Any, a: Any, gam: float, eps: float, hi: float
) -> float:
    """Return ``sum weights (phi(|res|) + phi*(|a|) - a . res)``."""
    young = 0.0
    for i in range(res.shape[0]):
        square, square_a = 0.0, 0.0
        for j in range(res.shape[1]):
            square += res[i, j] * res[i, j]
            square_a += a[i, j] * a[i, j]
        size, x = square**0.5, square_a**0.5
        young += weights[i] * _young(size, x, gam, eps, hi)
        young += weights[i] * _twist(res, a, i, size, x)
    return young


@compiled(fastmath=REORDER)
def radial_slope(
    t: float,
    res: Any,
    move: Any,
    weights: Any,
    center: Any,
    gam: float,
    eps: float,
    hi: float,
    sigma: float,
) -> tuple[float, float]:
    """Return two derivatives of the smoothed loss sum at residuals ``res - t move``."""
    inv, first, second = _inverse(gam + sigma), 0.0, 0.0
    for i in range(res.shape[0]):
        square, inner, length = 0.0, 0.0, 0.0
        for j in range(res.shape[1]):
            v = res[i, j] - t * move[i, j] + sigma * center[i, j]
            square += v * v
            inner += v * move[i, j]
            length += move[i, j] * move[i, j]
        size = square**0.5
        if size <= eps:
            continue
        x = min((size - eps) * inv, hi)
        across, part = x / size, inner / size
        along = inv if x < hi else 0.0
        first -= weights[i] * across * inner
        second += weights[i] * (across * (length - part * part) + along * part * part)
    return first, second


@compiled(fastmath=REORDER)
def times_curvature(move: Any, unit: Any, across: Any, along: Any, out: Any) -> None:
    """Fill `out` with ``(across (I - u u^T) + along u u^T) move``, row by row."""
    for i in range(move.shape[0]):
        part = 0.0
        for j in range(move.shape[1]):
            part += unit[i, j] * move[i, j]
        part *= along[i] - across[i]
        for j in range(move.shape[1]):
            out[i, j] = across[i] * move[i, j] + part * unit[i, j]
