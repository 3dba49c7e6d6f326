"""Brute force: what the library must return, by explicit formulas on dense arrays."""

import math

import numpy as np
import scipy.sparse as sp

from nbsketch import (
    CallableKernel,
    GaussianKernel,
    GaussianTanimotoKernel,
    LaplacianKernel,
    LinearKernel,
    MaternKernel,
    PolynomialKernel,
    PrecomputedKernel,
    SobolevKernel,
    TanimotoKernel,
)


def sparse_array(shape, density, rng):
    """Return a CSR array of numbers in [0, 1); `density` is the share of nonzeros."""
    rng = np.random.default_rng(rng)
    nonzero = rng.random(shape) < density
    return sp.csr_array(np.where(nonzero, rng.random(shape), 0.0))


def differences(X, Y, bandwidth):
    """Return (x_i - y_j) / bandwidth, of shape (n, m, q), in float64."""
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    return (X[:, None, :] - Y[None, :, :]) / np.asarray(bandwidth)


def gaussian(X, Y, bandwidth):
    return np.exp(-0.5 * (differences(X, Y, bandwidth) ** 2).sum(axis=2))


def laplacian(X, Y, bandwidth):
    return np.exp(-np.abs(differences(X, Y, bandwidth)).sum(axis=2))


def matern(X, Y, bandwidth, nu):
    t = np.sqrt((differences(X, Y, bandwidth) ** 2).sum(axis=2))
    if nu == 0.5:
        return np.exp(-t)
    if nu == 1.5:
        return (1 + math.sqrt(3) * t) * np.exp(-math.sqrt(3) * t)
    if nu == 2.5:
        return (1 + math.sqrt(5) * t + 5 * t**2 / 3) * np.exp(-math.sqrt(5) * t)
    return np.exp(-(t**2) / 2)


def polynomial(X, Y, degree, scale, offset):
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    return (scale * (X[:, None, :] * Y[None, :, :]).sum(axis=2) + offset) ** degree


def tanimoto(X, Y):
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    similarity = np.ones((len(X), len(Y)))
    for i, x in enumerate(X):
        for j, y in enumerate(Y):
            if x.any() or y.any():
                similarity[i, j] = x @ y / (x @ x + y @ y - x @ y)
    return similarity


def sobolev(X, Y):
    X, Y = np.asarray(X, dtype=np.float64), np.asarray(Y, dtype=np.float64)
    return np.minimum(X[:, None, :], Y[None, :, :]).prod(axis=2)


def kernel_matrix(kernel, X, Y):
    """Return k(X, Y) in float64 by the formula of the kernel."""
    match kernel:
        case GaussianKernel():
            return gaussian(X, Y, kernel.bandwidth)
        case LaplacianKernel():
            return laplacian(X, Y, kernel.bandwidth)
        case MaternKernel():
            return matern(X, Y, kernel.bandwidth, kernel.nu)
        case PolynomialKernel():
            return polynomial(X, Y, kernel.degree, kernel.scale, kernel.offset)
        case LinearKernel():
            return polynomial(X, Y, 1, 1.0, 0.0)
        case GaussianTanimotoKernel():
            return np.exp(-(1 - tanimoto(X, Y)) / kernel.bandwidth**2)
        case TanimotoKernel():
            return tanimoto(X, Y)
        case SobolevKernel():
            return sobolev(X, Y)
        case CallableKernel():
            return np.asarray(kernel.function(X, Y), dtype=np.float64)
        case PrecomputedKernel():
            return np.asarray(X, dtype=np.float64)[:, Y]
    raise NotImplementedError(f"no formula for {kernel!r}")


def dense_sketch(sketch):
    """Return the (s, n) matrix of a sketch, entry by entry from its CSR arrays."""
    csr = sketch.to_csr()
    matrix = np.zeros(sketch.shape)
    for i in range(sketch.shape[0]):
        for entry in range(csr.indptr[i], csr.indptr[i + 1]):
            matrix[i, csr.indices[entry]] += csr.data[entry]
    return matrix


def sketched_columns(K, S):
    """Return K S^T for dense K (n, m) and S (s, m), one landmark at a time."""
    product = np.zeros((K.shape[0], S.shape[0]))
    for j in range(K.shape[1]):
        product += np.outer(K[:, j], S[:, j])
    return product


def sketched_core(K, S):
    """Return S K S^T for dense K (n, n) and S (s, n)."""
    return sketched_columns(sketched_columns(K, S).T, S)


def critical_radius(values, noise=1.0):
    """Return the critical radius of all n eigenvalues of K/n, by bisection."""

    def holds(square):
        return math.sqrt(np.minimum(square, values).mean()) <= square / noise

    low, high = 0.0, 1.0
    while not holds(high):
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return math.sqrt(high)


def satisfiability_norms(K, S, d):
    """Return the two norms of K-satisfiability of a dense S, by singular values."""
    U, values, _ = np.linalg.svd(K / len(K))
    leading = S @ U[:, :d]
    others = S @ (U[:, d:] * np.sqrt(values[d:]))
    distortion = np.linalg.norm(leading.T @ leading - np.eye(d), 2)
    return distortion, np.linalg.norm(others, 2)


def structured_scores(K_new, K, KY, KY_new, diagonal, RX, RY, alpha):
    """Return <h(x), psi(y)> - k(y, y) / 2 by the formula with pseudo-inverses.

    K (n, n) and KY (n, n) are the Gram matrices of the training inputs and outputs,
    K_new (m, n) and KY_new (c, n) the values of new inputs and of candidates with them,
    RX and RY the dense sketches.
    """
    ridge = len(K) * alpha
    if np.array_equal(RX, np.eye(len(K))):
        inputs = np.linalg.inv(K + ridge * np.eye(len(K)))
    else:
        inner = RX @ K @ K @ RX.T + ridge * RX @ K @ RX.T
        inputs = np.linalg.pinv(inner, rcond=1e-12, hermitian=True) @ RX @ K
    core = np.linalg.pinv(RY @ KY @ RY.T, rcond=1e-10, hermitian=True)
    omega = inputs @ KY @ RY.T @ core
    return K_new @ RX.T @ omega @ RY @ KY_new.T - diagonal / 2


def sgm_points(Z, Y, order, batch_size, rates, slope=None, drift=0.0, start=0.0):
    """Return (coef, intercept) after each step of stochastic gradients, row by row.

    `slope` turns the residual (d,) of a row into minus the gradient of its loss.
    """
    coef, intercept = np.zeros((Z.shape[1], Y.shape[1])), np.zeros(Y.shape[1]) + start
    points = []
    for t, rate in enumerate(rates):
        batch = order[t * batch_size : (t + 1) * batch_size]
        moves, drifts = np.zeros_like(coef), np.zeros_like(intercept)
        for i in batch:
            pull = Y[i] - Z[i] @ coef - intercept
            pull = pull if slope is None else slope(pull)
            moves += np.outer(Z[i], pull) / len(batch)
            drifts += pull / len(batch)
        coef, intercept = coef + rate * moves, intercept + drift * drifts
        points.append((coef, intercept))
    return points


def leverage_scores(K, alpha):
    """Return [K (K + n alpha I)^-1]_ii from the eigenvectors of K."""
    values, vectors = np.linalg.eigh(K)
    return vectors**2 @ (values / (values + len(K) * alpha))


def ridge_on_landmarks(sample, kernel, point, left_out=None):
    """Return the function of rows that a ridge with free intercept fits.

    The penalty is on the landmarks of the whole sample; one row may be left out.
    """
    inverse, tau = np.exp(point[:-1]), np.exp(point[-1])
    L = sample.X[sample.landmarks]
    weights = np.ones(len(sample.X))
    if sample.weights is not None:
        weights = sample.weights.copy()
    if left_out is not None:
        weights[left_out] = 0
    C = kernel(L, L, 1 / inverse) + 1e-8 * np.sqrt(len(L)) * np.eye(len(L))
    penalty = np.zeros((len(L) + 1, len(L) + 1))
    penalty[1:, 1:] = tau * C

    def design(X):
        return np.column_stack([np.ones(len(X)), kernel(X, L, 1 / inverse)])

    A = design(sample.X)
    system = A.T @ (weights[:, None] * A) + penalty
    coef = np.linalg.solve(system, A.T @ (weights[:, None] * sample.Y))
    return lambda X: design(X) @ coef


def loo_residuals(sample, kernel, point):
    """Return the residual of each row of a sample in a fit without it."""
    rows = range(len(sample.X))
    fits = (ridge_on_landmarks(sample, kernel, point, i) for i in rows)
    return np.array(
        [sample.Y[i] - fit(sample.X[i : i + 1])[0] for i, fit in enumerate(fits)]
    )
