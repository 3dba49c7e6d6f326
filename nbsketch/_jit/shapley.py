"""Compiled Shapley values of sums of products of one factor per feature.

For a product game ``v(S) = prod_{j in S} a_j prod_{j not in S} m_j`` the Shapley value
of j is ``(a_j - m_j) int_0^1 prod_{l != j} (m_l + s (a_l - m_l)) ds``, the integral of
a polynomial, which Gauss-Legendre quadrature computes exactly; its terms are positive.
"""

import math

import numpy as np
from numba import prange

from nbsketch._jit.compiler import REORDER, compiled

_LN2 = math.log(2)


@compiled(inline="always")
def _factors(row, landmark, features, scale, squared, a):
    """Fill the factor of each feature in k(row, landmark)."""
    a[:] = 0.0
    for c in range(len(features)):
        step = scale[c] * (row[c] - landmark[c])
        a[features[c]] -= step * step if squared else abs(step)
    for j in range(len(a)):
        a[j] = math.exp(_LN2 * a[j])


@compiled(parallel=True)
def mean_factors(rows, landmarks, features, scale, squared, out):
    """Fill the mean over rows of the factors of each landmark, (m, q)."""
    for i in prange(landmarks.shape[0]):
        a = np.empty(out.shape[1])
        out[i] = 0.0
        for k in range(rows.shape[0]):
            _factors(rows[k], landmarks[i], features, scale, squared, a)
            out[i] += a
        out[i] /= rows.shape[0]


@compiled(fastmath=REORDER, inline="always")
def _product_values(a, m, nodes, weights, before, after, values):
    """Fill the Shapley values of one product game, (q,)."""
    q = len(a)
    count = len(nodes)
    for g in range(count):
        before[0, g] = 1.0
        after[g] = weights[g]
    for j in range(q):
        for g in range(count):
            before[j + 1, g] = before[j, g] * (m[j] + nodes[g] * (a[j] - m[j]))
    for j in range(q - 1, -1, -1):
        total = 0.0
        for g in range(count):
            total += before[j, g] * after[g]
            after[g] *= m[j] + nodes[g] * (a[j] - m[j])
        values[j] = (a[j] - m[j]) * total


@compiled(parallel=True)
def shapley_of_products(
    rows, landmarks, features, scale, squared, means, coef, nodes, weights, out
):
    """Fill the Shapley values of rows, (n, q, d), for coefficients (m, d)."""
    q, d = out.shape[1:]
    for k in prange(rows.shape[0]):
        a = np.empty(q)
        values = np.empty(q)
        before = np.empty((q + 1, len(nodes)))
        after = np.empty(len(nodes))
        out[k] = 0.0
        for i in range(landmarks.shape[0]):
            _factors(rows[k], landmarks[i], features, scale, squared, a)
            _product_values(a, means[i], nodes, weights, before, after, values)
            for j in range(q):
                for t in range(d):
                    out[k, j, t] += coef[i, t] * values[j]
