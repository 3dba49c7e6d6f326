"""Compiled operations of the extended linear-quadratic losses.

A loss psi of the residual is defined by its conjugate, gam a^2 / 2 + eps |a| on [lo,
hi]. Its dual point at residual r, smoothed by sigma around the multiplier c,

    a(r) = clip(soft(r + sigma c, eps) / (gam + sigma), lo, hi),

is the slope of psi (sigma = 0) and of its Moreau envelope (sigma > 0). The bounds are
one number per row, so that two classes or several quantile levels can be mixed. Loops
have no branches, so that the compiler can vectorize them.
"""

from nbsketch._jit.compiler import REORDER, compiled

# Used as 1 / 0: a dual point without curvature jumps from one bound to the other.
STEEP = 1e300


@compiled(fastmath=REORDER)
def _inverse(number):
    return 1.0 / number if number > 0.0 else STEEP


@compiled(fastmath=REORDER)
def _clip(v, lo, hi):
    """Return min(max(v, lo), hi), which would take longer to compile."""
    v = lo if lo > v else v
    return hi if hi < v else v


@compiled(fastmath=REORDER)
def _soft(v, eps):
    return v - _clip(v, -eps, eps)


@compiled(fastmath=REORDER)
def _young(r, a, top, gam, eps):
    """Return psi(r) + psi*(a) - a r, given top = psi'(r): exactly 0 if a is top."""
    return (top - a) * (r - 0.5 * gam * (top + a)) - eps * (abs(top) - abs(a))


@compiled(fastmath=REORDER)
def dual_point(res, weights, center, lo, hi, gam, eps, sigma, a, inside):
    """Fill `a` and whether it lies strictly between kinks; return sums.

    The sums are those of ``weights * a`` and of the Fenchel-Young terms.
    """
    inv = _inverse(gam + sigma)
    inv_gam = _inverse(gam)
    total = 0.0
    young = 0.0
    for i in range(res.shape[0]):
        r = res[i]
        v = r + sigma * center[i]
        x = _clip(_soft(v, eps) * inv, lo[i], hi[i])
        top = _clip(_soft(r, eps) * inv_gam, lo[i], hi[i])
        a[i] = x
        inside[i] = (x > lo[i]) & (x < hi[i]) & (abs(v) >= eps)
        total += weights[i] * x
        young += weights[i] * _young(r, x, top, gam, eps)
    return total, young


@compiled(fastmath=REORDER)
def young_sum(res, weights, a, lo, hi, gam, eps):
    """Return ``sum weights (psi(res) + psi*(a) - a res)``."""
    inv_gam = _inverse(gam)
    young = 0.0
    for i in range(res.shape[0]):
        top = _clip(_soft(res[i], eps) * inv_gam, lo[i], hi[i])
        young += weights[i] * _young(res[i], a[i], top, gam, eps)
    return young


@compiled(fastmath=REORDER)
def slope_along(t, res, move, weights, center, lo, hi, gam, eps, sigma):
    """Return two derivatives of the smoothed loss sum at residuals ``res - t move``."""
    first = 0.0
    second = 0.0
    inv = _inverse(gam + sigma)
    for i in range(res.shape[0]):
        v = res[i] - t * move[i] + sigma * center[i]
        x = _clip(_soft(v, eps) * inv, lo[i], hi[i])
        change = weights[i] * move[i]
        first -= x * change
        inside = (x > lo[i]) & (x < hi[i]) & (abs(v) >= eps)
        second += change * move[i] if inside else 0.0
    return first, second * inv
